"""What every format is built on: its contract, the facts of a model, checksums and seals, the runner."""
