"""Benchmarks (`tsm-bench`): results are checked before they are timed, and tsm alternates with its rivals."""
