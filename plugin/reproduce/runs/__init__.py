"""Runs of variants: planned, performed, continued and summarised."""
