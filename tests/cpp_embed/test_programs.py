"""Third-party programs with the installed library: the API's contract, and the examples."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.runtime import Model

from .commands import ROOT, run

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3] * 12


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = tmp_path_factory.mktemp("model") / "model.tsm"
    torch.manual_seed(20210601)
    sizes = dict(vocab_size=20, decoder_hidden_size=24, decoder_embed_dim=8, decoder_layers=2)
    package(build_model("plstm_lm", **sizes), made)
    return made


@pytest.fixture(scope="module")
def programs(build):
    return build(ROOT / "tests/cpp_embed/project")


@pytest.mark.parametrize(
    "name", ["contract_c", "contract_cpp", "contract_static", "pool_c", "pool_cpp"]
)
def test_contract(programs, environment, path, name):
    if name == "contract_static" and not (programs / name).exists():
        pytest.skip("built without TSM_RUNTIME_STATIC")
    assert "all checks passed" in run(programs / name, path, env=environment)


def surprisal(path, tokens) -> str:
    scores = Model.load(path).create_stream().score(tokens)
    bits = -scores / np.log(2.0)
    return "".join(f"{t} {b:.4f}\n" for t, b in zip(tokens, bits, strict=True))


def check_surprise(program, environment, path, folder):
    """Tokens split anywhere, with the state saved to a file in between, give the same results as one piece."""
    state = folder / "state.bin"
    found = []
    for part in (TOKENS[:70], TOKENS[70:71], [], TOKENS[71:]):
        text = " ".join(map(str, part))
        found.append(run(program, path, state, input=text, env=environment))
    assert "".join(found) == surprisal(path, TOKENS)
    state.write_bytes(state.read_bytes()[:-4])
    refused = subprocess.run(
        [program, path, state], input="1", capture_output=True, text=True, env=environment
    )
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr.startswith(f"surprise: {state}: ")


def test_surprise_with_cmake(build, environment, path, tmp_path):
    program = build(ROOT / "examples/embed_c") / "surprise"
    check_surprise(program, environment, path, tmp_path)


def test_surprise_with_pkg_config(environment, path, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None or shutil.which("pkg-config") is None:
        pytest.skip("needs cc and pkg-config")
    program = tmp_path / "surprise"
    source = ROOT / "examples/embed_c/surprise.c"
    line = f"'{compiler}' -std=c99 -Wall -Werror '{source}' -o '{program}' "
    line += "$(pkg-config --cflags --libs tsm) -lm"
    # The folder name has a space: pkg-config escapes it, and eval unescapes it.
    run("sh", "-c", f'eval "{line}"', env=environment)
    check_surprise(program, environment, path, tmp_path)


def test_surprise_says_what_is_wrong(build, environment, path, tmp_path):
    program = build(ROOT / "examples/embed_c") / "surprise"
    for arguments, text, status, message in [
        ([], "", 2, "usage: surprise MODEL"),
        ([tmp_path / "none.tsm"], "", 1, "none.tsm"),
        ([path], "3 99", 1, "token 99 at step 1; accepted: 0 to 19"),
        ([path], "3 x", 1, "not a number"),
    ]:
        result = subprocess.run(
            [program, *arguments], input=text, capture_output=True, text=True, env=environment
        )
        assert result.returncode == status
        assert message in result.stderr


def test_surprise_keeps_the_old_state(build, environment, path, tmp_path):
    """If the new state cannot be written to the disk, the program says so, and the old one is still there."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc), which makes the fsync that fails")
    program = build(ROOT / "examples/embed_c") / "surprise"
    state, source, fails = tmp_path / "state.bin", tmp_path / "fails.c", tmp_path / "fails.so"
    run(program, path, state, input="3 1 4", env=environment)
    before = state.read_bytes()
    source.write_text("#include <errno.h>\nint fsync(int file) { errno = EIO; return -1; }\n")
    run(compiler, "-shared", "-fPIC", source, "-o", fails)
    result = subprocess.run(
        [program, path, state],
        input="1 5",
        capture_output=True,
        text=True,
        env={**environment, "LD_PRELOAD": str(fails)},
    )
    assert result.returncode == 1
    assert result.stderr == f"surprise: {state}: Input/output error\n"
    assert state.read_bytes() == before


@pytest.mark.parametrize("threads", [1, 3])
def test_server(build, environment, path, threads):
    """Answers to many users at once equal those to each user alone."""
    program = build(ROOT / "examples/embed_cpp") / "server"
    rng = np.random.default_rng(threads)
    model = Model.load(path)
    streams = {f"user{i}": model.create_stream() for i in range(25)}
    requests, expected = [], {name: [] for name in streams}
    for _ in range(400):
        name = f"user{rng.integers(25)}"
        tokens = rng.integers(0, 20, size=rng.integers(0, 6))
        logits = streams[name].feed(tokens, last_only=True)
        requests.append(" ".join([name, *map(str, tokens)]))
        expected[name].append(f"{streams[name].position} {logits.argmax()}")
    # Bad requests, each answered separately. No part of an invalid request is fed.
    bad = {"1 99": "token 99", "4 x 5": "token 'x'", "4 3y": "token '3y'", "9" * 30: "token '99"}
    requests[200:200] = [f"user3 {tokens}" for tokens in bad]
    output = run(program, path, threads, input="\n".join(requests), env=environment)
    found = {name: [] for name in streams}
    errors = []
    for line in output.splitlines():
        name, _, answer = line.partition(" ")
        (errors if answer.startswith("error") else found[name]).append(answer)
    assert found == expected
    assert len(errors) == len(bad)
    for error, message in zip(errors, bad.values(), strict=True):
        assert message in error


def test_server_of_more_threads_than_a_model_takes(build, environment, path):
    program = build(ROOT / "examples/embed_cpp") / "server"
    result = subprocess.run(
        [program, path, "5000"],
        input="user 3 1 4\n",
        capture_output=True,
        text=True,
        env=environment,
    )
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == "server: threads = 5000; accepted: 0 to 1024\n"


def test_server_keeps_no_more_requests_than_its_queue_holds(build, environment, path, tmp_path):
    """100,000 requests by one user, who waits for each answer, need a few MB of memory."""
    program = build(ROOT / "examples/embed_cpp") / "server"
    requests = tmp_path / "requests.txt"
    requests.write_text("user 1\n" * 100_000)
    # On Linux, the peak memory of a new process includes that of its parent, so a small process starts it.
    starter = [sys.executable, "-I", "-S", "-c", LARGEST, program, path, "1"]
    with requests.open() as source:
        result = subprocess.run(
            starter, stdin=source, capture_output=True, text=True, env=environment
        )
    assert result.returncode == 0, result.stderr
    assert int(result.stderr) < 16_000, f"{result.stderr} KiB"


LARGEST = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(done.returncode)
"""
