"""A model with its pool of streams, and a step of a stream: from its JSON to its answer."""
