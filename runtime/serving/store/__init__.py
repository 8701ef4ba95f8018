"""Stores for the states of streams: memory, SQLite, Redis. `open_store("sqlite:FILE")`."""
