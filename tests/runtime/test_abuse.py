"""Misuse that no program should attempt, but that must not crash the process."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tsm.runtime import _core

CLASSES = {
    name: value
    for name, value in vars(_core).items()
    if inspect.isclass(value) and not issubclass(value, Exception)
}


def test_the_classes_are_found():
    assert {"Model", "Stream", "Layer", "Cancel", "Memory", "FeedLoop"} <= set(CLASSES)


MAKERS = {
    "__new__": "cls.__new__(cls)",
    "object.__new__": "object.__new__(cls)",
    "the base's __new__": "cls.__mro__[1].__new__(cls)",
    "copyreg": "__import__('copyreg').__newobj__(cls)",
    "a subclass without __init__": "(lambda c: c.__new__(c))"
    "(type('S', (cls,), {'__init__': lambda self, *a, **k: None}))",
}
USE = """
from tsm.runtime import _core
cls = getattr(_core, {name!r})
try:
    made = {maker}
except TypeError:
    raise SystemExit(0)
for member in dir(cls):  # whatever was made must be whole: nothing of it may crash
    try:
        value = getattr(made, member)
        if callable(value) and not member.startswith("__"):
            value()
    except (TypeError, ValueError):
        pass
repr(made)
"""


@pytest.mark.parametrize("maker", MAKERS)
def test_no_half_made_objects(maker):
    """Each class is tested in a separate process, so that a crash is a failure, not the end of the tests."""
    for name in CLASSES:
        text = USE.format(name=name, maker=MAKERS[maker])
        run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert run.returncode == 0, (name, run.returncode, run.stderr)


HAMMER = """
import sys, threading, numpy as np
from tsm.runtime import Model, TsmError
model = Model.load(sys.argv[1])
wrong = np.array([2**40, -2**40, 2**62, -1], np.int64)
tokens = np.zeros(60_000, sys.argv[2])
bad = wrong.astype(tokens.dtype) if sys.argv[2] != "uint16" else np.array([65535, 40000], np.uint16)
over = threading.Event()

def spoil():
    while not over.is_set():
        for value in bad:
            tokens[:] = value
            tokens[:] = 0

thread = threading.Thread(target=spoil)
thread.start()
streams = [model.create_stream() for _ in range(2)]
fed = 0
for _ in range({rounds}):
    for call in (
        lambda: streams[0].feed(tokens, last_only=True),
        lambda: streams[0].score(tokens),
        lambda: model.feed_many(streams, [tokens, tokens[:100]], last_only=True),
    ):
        try:
            call()
            fed += 1
        except TsmError as error:
            assert error.kind == "invalid argument", error
    for stream in streams:
        blob = stream.save_state()
        stream.load_state(blob)
        stream.reset()
over.set()
thread.join()
print("survived")
"""


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16"])
@pytest.mark.parametrize("model", ["lm", "timeless"])  # embedded, and one-hot
def test_tokens_that_change_during_the_call(files, model, dtype):
    text = HAMMER.replace("{rounds}", "4")
    run = subprocess.run(
        [sys.executable, "-c", text, str(files[model]), dtype], capture_output=True, text=True
    )
    assert run.returncode == 0, (run.returncode, run.stderr)
    assert run.stdout == "survived\n"
