"""A model repository of the Triton inference server."""
