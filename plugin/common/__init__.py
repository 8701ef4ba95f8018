"""Utilities for all levels: durable files, bounded reads, random numbers, formatting, the style of figures."""
