"""Benchmarks (`tsm-bench`): results are checked before anything is timed, and tsm and its rivals take turns."""
