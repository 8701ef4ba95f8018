"""Stream text through an ONNX file of tsm-export, with onnxruntime, numpy and the file's own metadata.

python onnx_client.py model.onnx < text      perplexity of the text, and what the model expects next
"""

import json
import sys

import numpy as np
import onnxruntime


class Stream:
    """feed(tokens) -> logits [T,V]; self.state is the memory of the stream."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        facts = self.session.get_modelmeta().custom_metadata_map
        self.ids = {symbol: i for i, symbol in enumerate(json.loads(facts["vocabulary"]))}
        self.tokenizer = json.loads(facts["tokenizer"])
        self.fixed = int(facts["chunk_size"] or 0)  # T of an unrolled graph; 0: any
        self.inputs = json.loads(facts["inputs"])  # which of lengths and dt the graph has
        if self.fixed and "lengths" not in self.inputs:
            sys.exit(f"chunks are filled up to {self.fixed} steps: the file must have lengths")
        self.layout = json.loads(facts["states"])
        self.state = {s["input"]: np.zeros((1, s["width"]), np.float32) for s in self.layout}

    def feed(self, tokens):
        x = np.pad([tokens], ((0, 0), (0, max(0, self.fixed - len(tokens)))))  # to a fixed T
        clock = {"lengths": np.array([len(tokens)]), "dt": np.ones(x.shape, np.float32)}
        feeds = {"x": x, **{name: clock[name] for name in self.inputs}, **self.state}
        logits, *new = self.session.run(["logits", *(s["output"] for s in self.layout)], feeds)
        self.state = {s["input"]: value for s, value in zip(self.layout, new, strict=True)}
        return logits[0, : len(tokens)]

    def encode(self, line):
        """Ids of a line, including its newline."""
        if self.tokenizer["kind"] not in ("word", "char"):
            sys.exit(f"this client knows words and characters, not {self.tokenizer['kind']!r}")
        words = self.tokenizer["kind"] == "word"
        symbols = [*line.split(), self.tokenizer["end"]] if words else list(line)
        ids = [self.ids.get(s, self.ids.get("<unk>")) for s in symbols]
        if None in ids:
            sys.exit(f"{symbols[ids.index(None)]!r} is not in the dictionary, which has no <unk>")
        return ids


stream = Stream(sys.argv[1])
size = stream.fixed or 32
bits, count, expected = 0.0, 0, None  # expected: log2 p of the next token
for line in map(bytes.decode, sys.stdin.buffer):  # UTF-8 in any locale
    tokens = stream.encode(line)
    for start in range(0, len(tokens), size):
        chunk = tokens[start : start + size]
        logits = stream.feed(chunk).astype(np.float64)
        log_p = (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)) / np.log(2)
        for token, after in zip(chunk, log_p, strict=True):
            if expected is not None:
                bits, count = bits - expected[token], count + 1
            expected = after
if count == 0:
    sys.exit("the text has fewer than two tokens: there is none that could have been expected")
best = [list(stream.ids)[i] for i in np.argsort(-expected)[:3]]
print(f"{count} tokens, perplexity {2 ** (bits / count):.4f}; next: {best}")
