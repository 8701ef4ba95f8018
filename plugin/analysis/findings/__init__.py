"""What an analysis returns, and how it is run, written and shown."""
