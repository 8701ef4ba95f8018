"""Measures of a trained model, by name. catalogue.py registers all of them."""
