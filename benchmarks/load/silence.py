"""How long tsm-serve does not answer anybody while it handles a heavy request: `tsm-bench serve --silence`.

Each request is sent to the same server, with its default limits (but a history of 1,000 states), while another
connection asks for /healthz every 20 ms. The two models have random weights from a fixed seed: `words` has a
dictionary of 10,000 words and 256 units, `chars` one of 27 characters and 118 units.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .heavy import CHARACTERS, HEAVY, STATES, WORDS, Heavy, setup
from .servers import Kind, running
from .talks import END

if TYPE_CHECKING:
    from .generator import Target

EVERY, IDLE = 0.02, 2.0  # seconds between two probes, and of probes while nothing is sent
PATIENCE, LONGEST = 60.0, 600.0  # seconds until an answer goes on, and until a probe is answered
LINE = "{:<60}{:<28}{:>12}{:>9}{:>12}"
SIZES: dict[str, dict[str, Any]] = {
    "words": {"vocab_size": WORDS, "decoder_embed_dim": 128, "decoder_hidden_size": 256},
    "chars": {"vocab_size": CHARACTERS, "decoder_embed_dim": 64, "decoder_hidden_size": 118},
}


@dataclass(frozen=True)
class Row:
    name: str
    answer: str  # the first line
    received: int  # bytes
    seconds: float
    silent_ms: float
    probes: int


def chosen(text: str) -> list[Heavy]:
    """The requests whose name has the text."""
    if not (heavy := [one for one in HEAVY if text in one.name]):
        names = "; ".join(one.name for one in HEAVY)
        raise ValueError(f"--silence {text!r}; accepted: a part of one of: {names}")
    return heavy


def measured(folder: Path, requests: list[Heavy]) -> list[Row]:
    paths = [write_model(folder, name) for name in SIZES]
    flags = ("--store", "sqlite:{folder}/states.db", "--port", "0", "--log", "events")
    history = ("--history", str(STATES), "--history-every", "1")
    models = [f"{path.stem}={path}" for path in paths]
    kind = Kind("tsm-serve", "http", "/", ("tsm.runtime.serving.cli", *models, *flags, *history))
    home = folder / "server"
    home.mkdir()
    print(LINE.format("request", "answer", "bytes", "seconds", "silent, ms"))
    rows = []
    with running(kind, paths[0], None, home) as server:
        for data in setup():
            exchange(server.target, data)
        for heavy in (None, *requests):
            row = silence(server.target, heavy)
            figures = (f"{row.received:,}", f"{row.seconds:.2f}", f"{row.silent_ms:.1f}")
            print(LINE.format(row.name, row.answer, *figures), flush=True)
            rows.append(row)
    return rows


def write_model(folder: Path, name: str) -> Path:
    """A model with a dictionary of words or characters."""
    import torch

    from ...export.tsm.package import package
    from ...plugin import build_model
    from ...plugin.data.vocab import Vocab

    letters = [chr(ord("a") + i) for i in range(26)]
    if name == "words":
        many = [*letters, *(x + y for x in letters for y in letters)]
        many += [x + y for x in many[26:] for y in letters]
        symbols = [*many[: WORDS - 1], "<eos>"]
    else:
        symbols = [*letters, " "]
    torch.manual_seed(1)
    model = build_model("plstm_lm", decoder_layers=1, **SIZES[name])
    assets = {"dict.txt": Vocab(symbols, [1] * len(symbols)).dumps()}
    package(model, folder / f"{name}.tsm", assets=assets, tokenizer=name.rstrip("s"))
    return folder / f"{name}.tsm"


def silence(target: Target, heavy: Heavy | None) -> Row:
    """Probes the server while the request is sent and answered."""
    answers: list[tuple[str, int]] = []
    threads = []
    if heavy is not None:
        data = heavy.data()
        threads = [
            threading.Thread(
                target=lambda: answers.append(exchange(target, data, heavy.late)), daemon=True
            )
            for _ in range(heavy.clients)
        ]
    with socket.create_connection((target.host, target.port), timeout=LONGEST) as probe:
        longest, probes, begin = ask_health(probe), 1, time.perf_counter()
        for thread in threads:
            thread.start()
        end = begin + IDLE
        while any(thread.is_alive() for thread in threads) or time.perf_counter() < end:
            time.sleep(EVERY)
            longest, probes = max(longest, ask_health(probe)), probes + 1
            if threads and not any(thread.is_alive() for thread in threads):
                break
    seconds = time.perf_counter() - begin
    if heavy is None:
        return Row("idle", "", 0, seconds, 1e3 * longest, probes)
    line, received = answers[0]
    return Row(heavy.name, line, received, seconds, 1e3 * longest, probes)


def ask_health(probe: socket.socket) -> float:
    """Seconds until /healthz is answered."""
    begin = time.perf_counter()
    probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(b"}"):
        part = probe.recv(1 << 16)
        if not part:
            raise RuntimeError("the server has closed the connection of the probes")
        answer += part
    return time.perf_counter() - begin


def exchange(target: Target, data: bytes, late: float = 0.0) -> tuple[str, int]:
    """Sends all, and reads until the server closes: the first line, and the number of bytes."""
    head, received = b"", 0
    with socket.create_connection((target.host, target.port), timeout=PATIENCE) as client:
        buffer = bytearray(1 << 20)
        if b"Upgrade: websocket" in data[:200]:
            end = data.index(END) + len(END)
            client.sendall(data[:end])
            received = client.recv_into(buffer)  # the handshake
            head, data = bytes(buffer[:received]), data[end:]
        sender = threading.Thread(target=send_all, args=(client, data), daemon=True)
        sender.start()
        time.sleep(late)
        try:
            while size := client.recv_into(buffer):
                head = head or bytes(buffer[:200])
                received += size
        except TimeoutError:
            return "none", received
        except ConnectionError:  # closed while this client was still sending
            pass
        sender.join(PATIENCE)
    return head.partition(b"\r\n")[0].decode("latin-1").removeprefix("HTTP/1.1 "), received


def send_all(client: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # the server has refused the rest
        client.sendall(data)
