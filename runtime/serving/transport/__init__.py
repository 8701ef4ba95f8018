"""Requests before it is known what they ask for: limits, who may ask, HTTP, fields, refusals."""
