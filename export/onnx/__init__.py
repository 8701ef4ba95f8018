"""ONNX: the graph, its recurrences, and what runs it."""
