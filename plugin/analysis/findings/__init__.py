"""The result of an analysis, and how analyses are run, written and shown."""
