"""examples/python_service.py: users with a stream each, over HTTP, kept over restarts."""

from __future__ import annotations

import http.client
import resource
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from service_process import call, command, refused, running, service


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
            ("POST", "/users/u2/score", {"tokens": [1] * 10_001}, 400, "accepted: 0 to 10000"),
            ("POST", "/users/u2/score", {"tokens": [1 << 80]}, 400, "error"),
            ("POST", "/users/u2/score", 7, 400, "no object"),
            ("PUT", "/users/u2/state", bytes((1 << 20) + 1), 413, "accepted: 0 to 1048576"),
            ("POST", "/users/stranger/score", {"tokens": [99]}, 400, "token 99"),
            ("PUT", "/users/stranger/state", blob[:-1], 400, "TsmError"),
            ("GET", "/users/stranger", None, 404, "no user stranger"),
            ("GET", "/users/u1", None, 404, "no user u1"),
            ("GET", "/users/nobody/state", None, 404, "no user nobody"),
            ("POST", "/users/nobody", {}, 405, "POST on a user"),
            ("GET", "/users/../secrets", None, 404, "accepted: /users/NAME"),
        ]:
            found, text = refused(method, address + where, body)
            assert (found, message in text) == (status, True), text
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
    """A user who never stops, until the service is killed without a word."""
    begun = threading.Event()

    def talk(address):
        """Its last position that was answered."""
        position = 0
        try:
            while True:
                answer = call("POST", f"{address}/users/ada/score", {"tokens": [1]})
                position = answer["position"]
                begun.set()
        except (OSError, http.client.HTTPException):
            return position

    with ThreadPoolExecutor(1) as pool, running(files["lm"], tmp_path) as (process, address):
        last = pool.submit(talk, address)
        assert begun.wait(timeout=60)
        process.kill()
        process.wait()
        answered = last.result()
    stream = model.create_stream()
    stream.load_state((tmp_path / "ada.state").read_bytes())
    assert stream.position in (answered, answered + 1)  # stored, and killed before its answer
    assert answered > 0


def test_end_during_a_long_request(files, tmp_path):
    """SIGTERM, and SIGKILL 10 s later, while one user's request takes far longer: nobody loses a state."""
    names = [f"u{i}" for i in range(20)]
    options = ("--tokens", "20000000", "--grace", "1")
    with running(files["lm"], tmp_path, *options) as (process, address):
        for name in names:
            call("POST", f"{address}/users/{name}/score", {"tokens": [1, 2]})
        long = socket.create_connection(address.removeprefix("http://").split(":"))
        body = b'{"n": 20000000}'
        long.sendall(b"POST /users/u0/generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body))
        long.sendall(body)
        call("POST", f"{address}/users/u1/score", {"tokens": [3]})
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        long.close()
    with service(files["lm"], tmp_path) as address:
        found = [call("GET", f"{address}/users/{name}")["position"] for name in names]
    assert found == [2, 3, *[2] * 18]


def test_a_full_disk_loses_nothing(files, tmp_path):
    """What cannot be stored is refused and changes nothing; with space it goes on."""
    with running(files["lm"], tmp_path) as (process, address):
        for name in ("ada", "bob"):
            call("POST", f"{address}/users/{name}/score", {"tokens": [1, 2]})
        blob = call("GET", f"{address}/users/ada/state")
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        for method, where, body in [
            ("POST", "ada/score", {"tokens": [3]}),
            ("POST", "ada/generate", {"n": 3}),
            ("POST", "new/score", {"tokens": [3]}),
            ("PUT", "bob/state", blob),
        ]:
            status, message = refused(method, f"{address}/users/{where}", body)
            assert status == 507 and "could not be stored" in message
        assert call("GET", f"{address}/users/ada/state") == blob
        assert refused("GET", f"{address}/users/new")[0] == 404
        assert {path.name for path in tmp_path.iterdir()} == {"ada.state", "bob.state"}
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        assert call("POST", f"{address}/users/ada/score", {"tokens": [3]})["position"] == 3
        process.kill()
    with service(files["lm"], tmp_path) as address:
        assert call("GET", f"{address}/users/ada") == {"position": 3}
        assert call("GET", f"{address}/users/bob") == {"position": 2}


def test_more_users_than_streams(files, model, tmp_path):
    """Those in memory change places with those on disk; nobody notices."""
    texts = np.random.default_rng(1).integers(0, 20, size=(9, 4, 5))
    streams = [model.create_stream() for _ in texts]
    with service(files["lm"], tmp_path, "--streams", "2", "--users", "9") as address:
        for turn in range(4):
            for i, stream in enumerate(streams):
                tokens = texts[i, turn]
                found = call("POST", f"{address}/users/u{i}/score", {"tokens": tokens.tolist()})
                assert np.array_equal(np.float32(found["log_probs"]), stream.score(tokens))
        status, message = refused("POST", f"{address}/users/tenth/score", {"tokens": [1]})
        assert (status, "--users" in message) == (507, True)
        call("DELETE", f"{address}/users/u0")
        assert call("POST", f"{address}/users/tenth/score", {"tokens": [1]})["position"] == 1


def test_a_retry_does_not_feed_twice(files, tmp_path):
    with service(files["lm"], tmp_path) as address:
        request = {"tokens": [1, 2], "position": 0}
        assert call("POST", f"{address}/users/ada/score", request)["position"] == 2
        status, message = refused("POST", f"{address}/users/ada/score", request)
        assert (status, "the stream is at 2" in message) == (409, True)
        generated = call("POST", f"{address}/users/ada/generate", {"n": 3, "position": 2})
        assert generated["position"] == 5


def test_a_bad_snapshot_is_refused_and_kept(files, load, model, tmp_path):
    stream = model.create_stream()
    stream.feed([1, 2, 3])
    bad = {"torn": stream.save_state()[:-1], "strange": load("other").create_stream().save_state()}
    for name, blob in {"good": stream.save_state(), **bad}.items():
        (tmp_path / f"{name}.state").write_bytes(blob)
    with service(files["lm"], tmp_path) as address:
        assert call("GET", f"{address}/users/good") == {"position": 3}
        for name, blob in bad.items():
            status, message = refused("POST", f"{address}/users/{name}/score", {"tokens": [1]})
            assert (status, f"the snapshot of {name}: " in message) == (409, True)
            assert (tmp_path / f"{name}.state").read_bytes() == blob
        assert call("PUT", f"{address}/users/torn/state", stream.save_state()) == {"position": 3}
        call("DELETE", f"{address}/users/strange")
        assert call("POST", f"{address}/users/strange/score", {"tokens": [1]})["position"] == 1


def test_a_folder_has_one_service(files, tmp_path):
    with service(files["lm"], tmp_path):
        second = subprocess.run(
            **command(files["lm"], tmp_path), capture_output=True, text=True, timeout=60
        )
    assert second.returncode == 1 and "in use by another service" in second.stderr
