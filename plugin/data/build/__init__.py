"""Builds data folders from corpora, for `tsm-preprocess`."""
