"""Shared by all commands, also of export and benchmarks: parser, flags, one-line errors, progress bar."""
