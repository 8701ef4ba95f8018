"""Utilities shared by all packages: durable files, bounded reads, random numbers, formatting, the style of
figures."""
