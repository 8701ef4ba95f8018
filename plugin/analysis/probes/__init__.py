"""Measurements on models and cells that several analyses share."""
