"""Benchmarks: what is timed was checked first, and its rivals take turns with it (`tsm-bench`)."""
