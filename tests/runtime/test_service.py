"""examples/python_service.py: users with a stream each, over HTTP, kept over restarts."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
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
            ("POST", "/users/u2/score", b"[" * 200_000, 400, "RecursionError"),
            ("POST", "/users/u2/generate", {"n": 1, "temperature": -1}, 400, "temperature"),
            ("PUT", "/users/u2/state", blob[:-1], 400, "TsmError"),
            ("GET", "/users/u2/score", None, 405, "GET on score"),
            ("POST", "/users/u2/generate", {"n": 1 << 60}, 400, "accepted: 0 to 10000"),
            ("POST", "/users/u2/generate", {"n": "5"}, 400, "TypeError"),
            ("POST", "/users/stranger/score", {"tokens": [99]}, 400, "token 99"),
            ("PUT", "/users/stranger/state", blob[:-1], 400, "TsmError"),
            ("GET", "/users/stranger", None, 404, "no user stranger"),
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
    kept = {path.stem for path in tmp_path.iterdir()}
    assert kept == users, "asking, or a bad request, made or kept a user"


def test_first_requests_at_once(files, tmp_path):
    """Bad and good ones, all for a user who is not there yet: the good ones are one stream."""

    def first(address, token):
        try:
            return call("POST", f"{address}/users/ada/score", {"tokens": [token]})["position"]
        except urllib.error.HTTPError as error:
            assert error.code == 400
            return None

    with service(files["lm"], tmp_path) as address, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: first(address, 1 if i % 3 == 2 else 99), range(48)))
    assert sorted(filter(None, answers)) == list(range(1, 17))
    assert [path.name for path in tmp_path.iterdir()] == ["ada.state"]


def test_what_was_answered_is_what_was_saved(files, model, tmp_path):
    """A user who never stops, over one connection: requests that come during the save are refused."""
    for i in range(200):  # saving them takes a while, and u000 is the first
        (tmp_path / f"u{i:03}.state").write_bytes(model.create_stream().save_state())
    begun = threading.Event()

    def talk(address):
        """Its last position that was answered."""
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        position = 0
        try:
            while True:
                connection.request("POST", "/users/u000/score", '{"tokens": [1]}')
                response = connection.getresponse()
                answer = json.loads(response.read())
                if response.status != 200:
                    assert (response.status, answer) == (503, {"error": "the service is ending"})
                    return position
                position = answer["position"]
                begun.set()
        except (ConnectionError, http.client.HTTPException):  # the service has ended
            return position

    with ThreadPoolExecutor(1) as pool:
        with service(files["lm"], tmp_path) as address:
            last = pool.submit(talk, address)
            assert begun.wait(timeout=60)
        stream = model.create_stream()
        stream.load_state((tmp_path / "u000.state").read_bytes())
        assert stream.position == last.result() > 0


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
