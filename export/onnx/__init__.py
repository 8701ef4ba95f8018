"""ONNX: the graph, the forms of its recurrence, and its runners."""
