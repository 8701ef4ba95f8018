"""Stream text through an ONNX file written by tsm-export, with only onnxruntime, numpy and the file's metadata.

python onnx_client.py model.onnx < text      perplexity of the text, and what the model expects next;
                                             for a text classifier: the label of every line that is not blank
"""

import argparse
import json
import re
import sys

import numpy as np
import onnxruntime

REVIEW = r"""[^\W\d_]+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|[^\W_]+|[.,!?;:()\"$%&*/-]"""


class Stream:
    """feed(tokens) -> logits [T,V], or [1,C] for a classifier; self.state is the memory of the stream."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        facts = self.session.get_modelmeta().custom_metadata_map
        if "vocabulary" not in facts or "targets" in facts:
            sys.exit(f"{path} reads or gives numbers; accepted: from text to logits")
        self.ids = {symbol: i for i, symbol in enumerate(json.loads(facts["vocabulary"]))}
        self.tokenizer = json.loads(facts["tokenizer"])
        self.classifies, classes = facts["family"] == "classifier", int(facts["output_size"])
        self.labels = json.loads(facts.get("labels", json.dumps([str(i) for i in range(classes)])))
        self.fixed = int(facts["chunk_size"] or 0)  # T of an unrolled graph; 0: any
        self.inputs = json.loads(facts["inputs"])  # which of lengths and dt the graph has
        if self.fixed and "lengths" not in self.inputs:
            sys.exit(f"chunks are filled up to {self.fixed} steps: the file must have lengths")
        if facts.get("read_at") == "end":
            sys.exit(
                "this client adds no padding, which the model was trained to read (--read-at end)"
            )
        self.layout = json.loads(facts["states"])
        self.restart()

    def restart(self):
        self.state = {s["input"]: np.zeros((1, s["width"]), np.float32) for s in self.layout}

    def feed(self, tokens):
        x = np.pad([tokens], ((0, 0), (0, max(0, self.fixed - len(tokens)))))  # to a fixed T
        clock = {"lengths": np.array([len(tokens)]), "dt": np.ones(x.shape, np.float32)}
        feeds = {"x": x, **{name: clock[name] for name in self.inputs}, **self.state}
        logits, *new = self.session.run(["logits", *(s["output"] for s in self.layout)], feeds)
        self.state = {s["input"]: value for s, value in zip(self.layout, new, strict=True)}
        return logits if self.classifies else logits[0, : len(tokens)]

    def log_p(self, tokens):
        """Yields log p of what follows each token or, for a classifier, of the classes after each chunk."""
        for start in range(0, len(tokens), self.fixed or 32):
            logits = self.feed(tokens[start : start + (self.fixed or 32)]).astype(np.float64)
            yield from logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)

    def encode(self, line):
        """Ids of a line, including its newline."""
        kind, end = self.tokenizer["kind"], self.tokenizer.get("end")
        if kind not in ("word", "char", "review"):
            sys.exit(f"this client supports words, characters and reviews, not {kind!r}")
        if kind == "review":
            line = " ".join(re.findall(REVIEW, line.lower().replace("<br />", " ")))
        symbols = list(line) if kind == "char" else [*line.split(), *([end] if end else [])]
        ids = [self.ids.get(s, self.ids.get("<unk>")) for s in symbols]
        if None in ids:
            sys.exit(f"{symbols[ids.index(None)]!r} is not in the dictionary, which has no <unk>")
        return ids


def classify(stream, lines):
    for line in filter(str.strip, lines):  # blank ones are skipped
        stream.restart()
        *_, last = [None, *stream.log_p(stream.encode(line))]
        if last is None:
            sys.exit(f"{line!r} has no token")
        print(f"{stream.labels[last.argmax()]}\t{np.exp(last.max()):.4f}")


def score(stream, lines):
    nats, count, expected = 0.0, 0, None  # expected: log p of every possible next token
    for tokens in map(stream.encode, lines):
        for token, after in zip(tokens, stream.log_p(tokens), strict=True):
            if expected is not None:
                nats, count = nats - expected[token], count + 1
            expected = after
    if count == 0:
        sys.exit("the text has fewer than two tokens: nothing can be scored")
    best = [list(stream.ids)[i] for i in np.argsort(-expected)[:3]]
    print(f"{count} tokens, perplexity {np.exp(nats / count):.4f}; next: {best}")


parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("model", help="a file from tsm-export onnx; the text comes from standard input")
stream = Stream(parser.parse_args().model)
lines = map(bytes.decode, sys.stdin.buffer)  # UTF-8 in any locale
(classify if stream.classifies else score)(stream, lines)
