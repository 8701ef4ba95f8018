"""The instrument that measures how long a server is silent. Nothing is asserted about speed."""

from __future__ import annotations

import json
import socketserver
import threading
import time

from tsm.benchmarks.cli import main
from tsm.benchmarks.load import heavy, silence
from tsm.benchmarks.load.generator import Target
from tsm.benchmarks.load.heavy import HEAVY, MOST_BYTES, Heavy

STALL = 0.3  # seconds


def test_a_stall_is_measured_in_full():
    lock = threading.Lock()

    class Server(socketserver.StreamRequestHandler):
        """Stops answering anybody when it reads "heavy"."""

        def handle(self):
            while line := self.rfile.readline():
                if line == b"heavy\n":
                    with lock:
                        time.sleep(STALL)
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    return
                if line == b"\r\n":
                    with lock:
                        self.wfile.write(b"{}")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = Target(*server.server_address, "http", "/")
        row = silence.silence(target, Heavy("stall", lambda: b"heavy\n", clients=2))
        assert (row.answer, row.received) == ("200 OK", 19)
        assert row.silent_ms >= 1e3 * (STALL - 2 * silence.EVERY) and row.probes > 1
        server.shutdown()


def test_bodies_are_as_large_as_is_accepted():
    for one in HEAVY:
        if one.name.startswith(("1 MB", "infer", "score, 1 MB")):
            body = one.data().partition(b"\r\n\r\n")[2]
            assert 0.9 * MOST_BYTES < len(body) <= MOST_BYTES, one.name


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(heavy, "SESSIONS", 2)
    monkeypatch.setattr(heavy, "STATES", 2)
    path = tmp_path / "silence.json"
    assert main(["serve", "--silence", "a history", "--json", str(path)]) == 0
    values = json.loads(path.read_text())
    idle, row = values["rows"]
    assert (idle["name"], idle["answer"]) == ("idle", "")
    assert row["answer"] == "200 OK" and row["received"] > 50 * 100
    (goal,) = values["goals"]
    assert goal["measured"] == max(one["silent_ms"] for one in values["rows"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("tsm-serve: longest silence")
    assert main(["serve", "--silence", "nothing"]) == 2
    assert "--silence 'nothing'; accepted: a part of one of: " in capsys.readouterr().err
