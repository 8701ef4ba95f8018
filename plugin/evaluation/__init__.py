"""Scores of trained models, for tsm-eval, tsm-reproduce, tsm-analyze and tsm-export."""
