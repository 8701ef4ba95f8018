"""examples/python_service.py: users with a stream each, over HTTP, kept over restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

SERVICE = Path(__file__).parents[2] / "examples" / "python_service.py"


@contextmanager
def service(model_path, folder):
    """The address of a running service; it is ended as an operator would end it."""
    command = [sys.executable, SERVICE, model_path, "--port", "0", "--snapshots", folder]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("serving on "), line
            yield line.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0


def call(method, address, body=None):
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        raw = response.read()
        return json.loads(raw) if "json" in response.headers["Content-Type"] else raw


def test_service(files, model, tmp_path):
    texts = np.random.default_rng(0).integers(0, 20, size=(12, 20))
    streams = [model.create_stream() for _ in texts]
    expected = [s.score(text) for s, text in zip(streams, texts, strict=True)]

    def chat(address, i, tokens):
        answer = call("POST", f"{address}/users/u{i}/score", {"tokens": tokens.tolist()})
        return answer["log_probs"]

    with service(files["lm"], tmp_path) as address, ThreadPoolExecutor(6) as pool:
        first = list(pool.map(lambda i: chat(address, i, texts[i, :7]), range(12)))
    assert len(list(tmp_path.glob("*.state"))) == 12
    with service(files["lm"], tmp_path) as address, ThreadPoolExecutor(6) as pool:
        second = list(pool.map(lambda i: chat(address, i, texts[i, 7:]), range(12)))
        for i in range(12):
            assert np.array_equal(np.float32(first[i] + second[i]), expected[i])
        # A state moves to another user, who goes on as the first would.
        blob = call("GET", f"{address}/users/u0/state")
        assert blob == streams[0].save_state()
        assert call("PUT", f"{address}/users/new/state", blob) == {"position": 20}
        drawn = call("POST", f"{address}/users/new/generate", {"n": 5, "seed": 3})
        assert drawn == {"position": 25, "tokens": streams[0].generate(5, seed=3).tolist()}
        call("DELETE", f"{address}/users/u1")
        for method, where, body, status, message in [
            ("POST", "/users/u2/score", {"tokens": [99]}, 400, "token 99"),
            ("POST", "/users/u2/score", {}, 400, "tokens"),
            ("POST", "/users/u2/score", b"not json", 400, "JSON"),
            ("POST", "/users/u2/generate", {"n": 1, "temperature": -1}, 400, "temperature"),
            ("PUT", "/users/u2/state", blob[:-1], 400, "TsmError"),
            ("GET", "/users/u2/score", None, 405, "GET on score"),
            ("POST", "/users/u2/generate", {"n": 1 << 60}, 400, "accepted: 0 to 10000"),
            ("POST", "/users/u2/generate", {"n": "5"}, 400, "TypeError"),
            ("GET", "/users/u1", None, 404, "no user u1"),
            ("GET", "/users/nobody/state", None, 404, "no user nobody"),
            ("POST", "/users/nobody", {}, 405, "POST on a user"),
            ("GET", "/users/../secrets", None, 404, "accepted: /users/NAME"),
        ]:
            with pytest.raises(urllib.error.HTTPError) as caught:
                call(method, address + where, body)
            assert caught.value.code == status
            assert message in caught.value.read().decode()
        assert call("GET", f"{address}/users/u2") == {"position": 20}
    users = {f"u{i}" for i in range(12) if i != 1} | {"new"}
    assert {path.stem for path in tmp_path.iterdir()} == users, "asking made or kept a user"


def test_a_bad_snapshot_is_set_aside(files, model, tmp_path, capfd):
    stream = model.create_stream()
    stream.feed([1, 2, 3])
    (tmp_path / "good.state").write_bytes(stream.save_state())
    (tmp_path / "torn.state").write_bytes(stream.save_state()[:-1])
    with service(files["lm"], tmp_path) as address:
        assert call("GET", f"{address}/users/good") == {"position": 3}
        assert call("PUT", f"{address}/users/torn/state", stream.save_state()) == {"position": 3}
    assert "torn.state is set aside as torn.bad: " in capfd.readouterr().err
    assert (tmp_path / "torn.bad").read_bytes() == stream.save_state()[:-1]
    assert (tmp_path / "torn.state").read_bytes() == stream.save_state()
