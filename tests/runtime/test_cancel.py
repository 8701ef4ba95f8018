"""Long calls that end early: by a Cancel that another thread sets, or by a signal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import long_calls
from long_calls import CALLS
from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.runtime import Cancel, Model, TsmError


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = tmp_path_factory.mktemp("slow") / "slow.tsm"
    torch.manual_seed(1)
    package(build_model("plstm_lm", vocab_size=50, decoder_hidden_size=128), made)
    return made


@pytest.fixture(scope="module")
def slow(path):
    return Model.load(path)


def test_a_cancel_is_a_flag():
    cancel = Cancel()
    assert not cancel.is_set()
    cancel.set()
    cancel.set()
    assert cancel.is_set()
    cancel.clear()
    assert not cancel.is_set()


@pytest.mark.parametrize("name", CALLS)
def test_another_thread_ends_it(slow, name):
    stream, cancel, running = slow.create_stream(), Cancel(), threading.Event()
    stream.feed([3, 1, 4])
    before = stream.save_state()

    def end_it() -> None:
        while "busy" not in repr(stream):  # the call has the stream
            running.wait(0.001)
        cancel.set()

    thread = threading.Thread(target=end_it, daemon=True)
    thread.start()
    with pytest.raises(TsmError, match="cancelled") as caught:
        CALLS[name](slow, stream, cancel=cancel)
    thread.join()
    assert (caught.value.kind, caught.value.chunk) == ("cancelled", None)
    assert stream.save_state() == before
    with pytest.raises(TsmError, match="cancelled"):  # it is still set
        stream.feed([1], cancel=cancel)
    cancel.clear()
    assert np.array_equal(stream.fork().feed([1], cancel=cancel), stream.fork().feed([1]))


def test_what_is_no_cancel(slow):
    with pytest.raises(TypeError):
        slow.create_stream().feed([1], cancel=True)


PROGRAM = """
import os, signal, sys, threading, time
sys.path.insert(0, {folder!r})
from long_calls import CALLS
from tsm.runtime import Model
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs that a shell starts with & ignore it
model = Model.load({path!r})
stream = model.create_stream()
stream.feed([3, 1, 4])
before = stream.save_state()

def press():
    while "busy" not in repr(stream):  # the call has the stream
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
try:
    CALLS[{name!r}](model, stream)
except KeyboardInterrupt:
    assert stream.save_state() == before
    stream.feed([1])
    print("interrupted")
"""


AT_EXIT = """
import sys, threading
from tsm.runtime import Model
stream = Model.load({path!r}).create_stream()
called = threading.Event()

def work():
    while True:
        stream.{call}([3, 1, 4] * 100)
        called.set()

threading.Thread(target=work, daemon=True).start()
called.wait()
"""


@pytest.mark.parametrize("call", ["feed", "score"])
def test_python_exits_while_a_daemon_thread_computes(path, call):
    text = AT_EXIT.format(path=str(path), call=call)
    for _ in range(5):
        run = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=60
        )
        assert (run.stderr, run.returncode) == ("", 0)


@pytest.mark.parametrize("name", ["feed", "generate_many"])
def test_ctrl_c(path, name):
    text = PROGRAM.format(folder=os.path.dirname(long_calls.__file__), path=str(path), name=name)
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert (run.stdout, run.returncode) == ("interrupted\n", 0), run.stderr
