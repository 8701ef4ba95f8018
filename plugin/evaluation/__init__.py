"""Scores of a trained model: what tsm-eval, tsm-reproduce, tsm-analyze and tsm-export share."""
