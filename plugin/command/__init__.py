"""What all commands share, including those of export and benchmarks: parser, flags, one-line errors, progress
bar."""
