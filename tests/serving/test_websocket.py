"""A session over a WebSocket: the same answers, in order, with errors that do not end it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from socket import create_connection
from unittest.mock import MagicMock

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tsm.runtime.serving.routes.websocket import MOST_IN_A_ROW, Socket
from tsm.runtime.serving.transport.access import Access
from tsm.runtime.serving.transport.limits import Limits


def socket(server, name, **options):
    return connect(f"ws://{server.netloc}/v1/sessions/{name}/stream", **options)


def ask(websocket, **message):
    websocket.send(json.dumps(message))
    return json.loads(websocket.recv(timeout=60))


def test_a_session(server, model, name):
    alone = model.create_stream()
    with socket(server, name) as websocket:
        answer = ask(websocket, op="score", id=1, text="hello ")
        scored = alone.score(model.encode("hello ")).tolist()
        assert np.float32(answer.pop("log_probs")).tolist() == scored
        assert answer == {"id": 1, "position": 6}
        assert ask(websocket, tokens=[1]) == {"position": 7}  # feed, without an id
        assert ask(websocket, op="feed", id="x", tokens=[99])["error"]["status"] == 400
        assert ask(websocket, op="dance", id=2)["error"]["detail"].startswith(
            'op = "dance"; accepted'
        )
        websocket.send("{")
        assert "not JSON" in json.loads(websocket.recv())["error"]["detail"]
        websocket.send(b"bytes")
        assert "binary" in json.loads(websocket.recv())["error"]["detail"]
        assert ask(websocket, tokens=[1], expected_position=0)["error"]["position"] == 7
        alone.feed([1])
        drawn = alone.generate(9, seed=3).tolist()
        websocket.send(json.dumps({"op": "generate", "id": 3, "n": 9, "seed": 3}))
        parts = []
        while "done" not in (part := json.loads(websocket.recv())):
            parts.append(part)
        assert [token for one in parts for token in one["tokens"]] == part["tokens"] == drawn
        assert "".join(one["text"] for one in parts) == part["text"]
    with socket(server, name) as websocket:  # another connection goes on
        assert ask(websocket, tokens=[2])["position"] == 17


def test_messages_are_answered_in_order(server, name):
    with socket(server, name) as websocket:
        for i in range(40):
            websocket.send(json.dumps({"id": i, "tokens": [i % 27], "expected_position": i}))
        answers = [json.loads(websocket.recv()) for _ in range(40)]
    assert answers == [{"id": i, "position": i + 1} for i in range(40)]


def test_what_is_refused(server, name):
    for path, status in ((f"/v1/sessions/{name}/nowhere", 404), ("/v1/sessions/a%20b/stream", 400)):
        with pytest.raises(InvalidStatus) as caught:
            connect(f"ws://{server.netloc}{path}")
        assert caught.value.response.status_code == status
        assert json.loads(caught.value.response.body)["status"] == status
    with pytest.raises(InvalidStatus) as caught:
        socket(server, name, additional_headers={"Origin": "http://evil.example"})
    assert caught.value.response.status_code == 403
    host, port = server.netloc.split(":")
    with create_connection((host, int(port))) as client, pytest.raises(InvalidStatus) as caught:
        connect(f"ws://evil.example/v1/sessions/{name}/stream", sock=client)
    assert caught.value.response.status_code == 421
    with socket(server, name) as websocket:
        websocket.send("x" * ((1 << 20) + 1))
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(timeout=60)
        assert closed.value.rcvd.code == 1009  # too big


def test_a_flood_of_refused_messages_leaves_turns_for_others():
    """Nothing has to be awaited for such a message: not the network, not the pool, not the store."""
    flood = [{"type": "websocket.receive", "text": "{"}] * 500
    messages = iter([{"type": "websocket.connect"}, *flood, {"type": "websocket.disconnect"}])
    sent, seen = [], []

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    async def other():
        while True:
            seen.append(len(sent))
            await asyncio.sleep(0)

    async def main():
        service = MagicMock(limits=Limits(), access=Access({}, [], [], Limits()), draining=False)
        service.websockets = set()
        beside = asyncio.ensure_future(other())
        await Socket(service, {"headers": []}, receive, send).run("name")
        beside.cancel()

    asyncio.run(main())
    assert len(sent) == 501 and seen[-1] > 490
    assert max(b - a for a, b in pairwise(seen)) <= MOST_IN_A_ROW + 1  # and the acceptance
