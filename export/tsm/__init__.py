"""The .tsm file of the compiled runtime (../FORMAT.md)."""
