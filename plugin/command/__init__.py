"""The frame of a command: parser, flags, errors as one line, progress bar. Export and benchmarks use it too."""
