"""Where the states of streams outlive a process: memory, SQLite, Redis. `open_store("sqlite:FILE")`."""
