"""What an analysis gives, and how it is run, written and shown."""
