"""tsm-bench epoch: whole epochs of a recipe, with training, validation and saving."""
