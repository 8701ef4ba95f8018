"""A model with its pool of streams, and a step of a stream, from the JSON of the request to the answer."""
