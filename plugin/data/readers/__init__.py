"""Readers of a user's own files: tables of labelled texts, sequences of numbers."""
