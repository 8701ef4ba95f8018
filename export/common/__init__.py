"""What all formats share: their interface, the facts about a model, checksums and seals, the runner."""
