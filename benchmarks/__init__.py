"""Benchmarks: what is timed was checked first, and it alternates with its rivals (`tsm-bench`)."""
