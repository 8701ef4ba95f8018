"""A model repository for the Triton inference server."""
