"""With a corpus much larger than the memory used, peak RSS does not grow with the text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
PROGRAM = """
import resource, sys
from pathlib import Path
from tsm.plugin.data.build.pipeline import binarize, count_symbols
from tsm.plugin.data.tokenizers import WordTokenizer
from tsm.plugin.data.vocab import Vocab
from tsm.plugin.data import Corpus, FixedLength, LMStreams

LINE = " ".join(f"w{i}" for i in range(400))

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def work(lines, name):
    tokenizer = WordTokenizer()
    vocab = Vocab.build(count_symbols((LINE for _ in range(lines)), tokenizer))
    prefix = Path(sys.argv[1]) / name
    stats, _ = binarize((LINE for _ in range(lines)), tokenizer, vocab, prefix)
    return stats, Corpus(prefix)

work(1200, "warm")  # the first chunks bring numpy, buffers and a full window
before = peak()
stats, corpus = work(20000, "large")
growth = peak() - before
assert len(corpus) == 20000 * 401
batch = LMStreams(corpus, 4, FixedLength(50)).next_batch()
assert batch.x.shape == (4, 50)
print(growth, stats.characters, stats.bytes)
"""


def test_peak_memory_is_bounded(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    growth, characters, size = map(int, done.stdout.split())
    assert characters > 37_000_000
    assert size > 16_000_000
    assert growth < 6_000_000, (
        f"peak memory grew by {growth:,} bytes over {characters:,} characters"
    )
