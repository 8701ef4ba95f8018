"""Streams that outlive requests, connections and processes."""
