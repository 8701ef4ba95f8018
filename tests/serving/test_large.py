"""Requests as large as the limits allow: what is too much is refused before it is computed; the rest is handled
beside the event loop, in many short calls."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsm.runtime import Model
from tsm.runtime.serving.routes import kserve, openai, page
from tsm.runtime.serving.routes import sessions as session_routes
from tsm.runtime.serving.server import Options, Replica
from tsm.runtime.serving.session import sessions
from tsm.runtime.serving.streams import steps
from tsm.runtime.serving.streams.answers import BLOCK, encoded
from tsm.runtime.serving.streams.engine import Engine
from tsm.runtime.serving.streams.models import Source
from tsm.runtime.serving.streams.scoring import Scored, score
from tsm.runtime.serving.streams.steps import LONGEST_STOP, Step
from tsm.runtime.serving.streams.text import WINDOW, TextParts
from tsm.runtime.serving.transport import http
from tsm.runtime.serving.transport.access import new_token
from tsm.runtime.serving.transport.fields import shown
from tsm.runtime.serving.transport.limits import Limits
from tsm.runtime.serving.transport.off_loop import (
    CALLER,
    LARGE,
    SORTED,
    Line,
    off_loop,
    parts_of,
    written,
)
from tsm.runtime.serving.transport.problems import Problem

HOST = ((b"host", b"localhost"),)
LONG = "a quick brown fox jumps over the lazy dog " * 220  # 9,240 characters
BESIDE = "tsm-large_0"  # the thread's name


@pytest.mark.parametrize(
    "values",
    [
        {"prompt": "a", "n": 16, "max_tokens": 10_000, "logprobs": 20},
        {"prompt": [[1] * 10_000] * 16, "echo": True, "logprobs": 20, "max_tokens": 0},
        {"prompt": "a", "n": 11, "max_tokens": 10_000},
        {"prompt": ["a" * 4_546, "b"], "echo": True, "logprobs": 20, "max_tokens": 0},
    ],
    ids=["choices", "prompts", "tokens", "echo"],
)
def test_a_completion_of_too_many_numbers_is_not_computed(server, values):
    before = requests_of_pools(server)
    answer = server.ask("POST", "/v1/completions", values)
    assert answer.status == 413 and "100000 (--max-numbers)" in answer.json["error"]["message"]
    assert requests_of_pools(server) == before


def requests_of_pools(server) -> list[str]:
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    found = [one for one in lines if one.startswith("tsm_pool{") and 'name="requests"' in one]
    assert len(found) == 3
    return found


def served(files, check, token_file=None, **limits: float) -> None:
    """Runs check(replica), which sends requests without a socket."""

    async def run() -> None:
        source, bounds = Source("lm", str(files["lm"])), Limits(**limits)
        options = Options([source], log="off", limits=bounds, token_file=token_file)
        replica = Replica(options)
        replica.app.service = await replica.start()
        try:
            await check(replica)
        finally:
            await replica.end(replica.service)

    asyncio.run(run())


async def ask(
    replica: Replica, method: str, path: str, body: object, headers: Sequence = HOST
) -> tuple[int, dict]:
    sent = []
    head = {
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": headers,
    }

    async def receive() -> dict:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: dict) -> None:
        sent.append(message)

    await replica.app({"type": "http", **head}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def socket(replica: Replica, path: str, messages: list[dict], headers: list) -> None:
    """A WebSocket that sends these messages and leaves; each is answered without an error."""
    parts = iter([*messages, {"type": "websocket.disconnect"}])

    async def receive() -> dict:
        return next(parts)

    async def send(message: dict) -> None:
        assert message["type"] == "websocket.accept" or "error" not in json.loads(message["text"])

    await replica.app({"type": "websocket", "path": path, "headers": headers}, receive, send)


def test_a_completion_has_one_deadline(files, monkeypatch):
    """For all of its choices and their scores."""

    async def forever(*_: object) -> bytes:
        await asyncio.sleep(3600)
        return b""

    async def check(replica: Replica) -> None:
        status, body = await ask(replica, "POST", "/v1/completions", {"prompt": "a"})
        assert (status, body["error"]["code"]) == (504, 504) and "--max-seconds" in body["detail"]

    monkeypatch.setattr(openai, "_whole", forever)
    served(files, check, seconds=0.01)


def test_a_generation_and_its_prompt_have_one_deadline(files):
    async def check() -> None:
        engine, timeouts = Engine("lm", Model.load(files["lm"]), Limits()), []

        def noted(call):
            def calls(*arguments, **options):
                timeouts.append(options["timeout"])
                return call(*arguments, **options)

            return calls

        pool = engine.pool
        pool.feed, pool.generate = noted(pool.feed), noted(pool.generate)  # type: ignore[method-assign]
        await engine.run("s", Step("generate", text="abc", n=2), 0, "user", 30.0)
        assert 30.0 >= timeouts[0] > timeouts[1] > 0
        await engine.close(drain=False)

    asyncio.run(check())


TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [LONG]}
SCORE = {"text": LONG, "texts": True, "request_id": "r"}
COMPLETION = {"prompt": LONG[:5_000], "max_tokens": 0, "echo": True, "logprobs": 5}


@pytest.mark.parametrize(
    ("path", "body", "work"),
    [
        ("/v1/sessions/a/feed", {"tokens": [1] * 3_000, "logits": "each"}, {"parse", "encoded"}),
        ("/v1/sessions/a/score", SCORE, {"parse", "to_tokens", "answer_of", "encoded"}),
        ("/v1/sessions/a/generate", {"text": LONG, "n": 1}, {"parse", "_generation", "to_tokens"}),
        ("/v1/completions", {"prompt": LONG}, {"parse", "to_tokens"}),
        ("/v1/completions", COMPLETION, {"shown", "written"}),
        ("/v2/models/lm/infer", {"inputs": [TENSOR]}, {"parse", "parse_inference", "to_tokens"}),
        ("/v1/models/lm/decode", {"tokens": [1] * 9_000}, {"parse", "bounded", "decode"}),
    ],
    ids=["logits", "texts", "generate", "prompt", "scores", "infer", "decode"],
)
def test_large_work_is_done_beside_the_event_loop(files, monkeypatch, path, body, work):
    threads: dict[str, set[str]] = {}

    def noted(where: object, function: str, name: str = "") -> None:
        before = getattr(where, function)

        def calls(*arguments, **options):
            threads.setdefault(name or function, set()).add(threading.current_thread().name)
            return before(*arguments, **options)

        monkeypatch.setattr(where, function, calls)

    for where, function in (
        (http, "parse"),
        (session_routes, "_generation"),
        (kserve, "parse_inference"),
        (sessions, "answer_of"),
        (sessions, "encoded"),
        (Scored, "shown"),
        (openai, "written"),
        (page, "bounded"),
    ):
        noted(where, function)
    noted(steps, "encoded", "to_tokens")
    noted(openai, "encoded", "to_tokens")

    async def check(replica: Replica) -> None:
        model = Mock(wraps=(engine := replica.service.models.newest("lm")).model)
        monkeypatch.setattr(engine, "model", model if "decode" in work else engine.model)
        noted(model, "decode")
        status, _ = await ask(replica, "POST", path, body)
        assert status == 200

    served(files, check)
    assert {name: threads[name] for name in work} == {name: {BESIDE} for name in work}


def test_small_work_is_done_at_once():
    async def check() -> None:
        here = threading.current_thread().name
        assert await off_loop(LARGE, lambda: threading.current_thread().name) == here
        assert await off_loop(LARGE + 1, lambda: threading.current_thread().name) == BESIDE

    asyncio.run(check())


def in_line(pieces: list[tuple[str, str, int]], **limits: float) -> list[str]:
    """Sends pieces of work (name, user, size) while the thread is held, then frees it unless --max-seconds is
    given: the names in the order in which they were done, and NAME STATUS of those that were refused."""
    order, free, began = [], threading.Event(), threading.Event()

    def waiting(line: Line) -> int:
        return sum(map(len, line.waiting.values()))

    def hold() -> None:
        began.set()
        assert free.wait(60)

    async def send(line: Line, name: str, user: str, size: int) -> None:
        CALLER.set((line, user))
        try:
            await off_loop(LARGE + size, lambda: order.append(name))
        except Problem as problem:
            order.append(f"{name} {problem.status} {problem.detail.partition('(')[2]}")

    async def check() -> None:
        line = Line(Limits(**limits))
        held = asyncio.ensure_future(line.run("first", 1, hold))
        tasks = [asyncio.ensure_future(send(line, *piece)) for piece in pieces]
        while not began.is_set() or len(order) + waiting(line) < len(pieces):
            await asyncio.sleep(0.001)
        if "seconds" in limits:
            await asyncio.gather(*tasks, held, return_exceptions=True)
        free.set()
        await asyncio.gather(*tasks, held, return_exceptions=True)
        assert await line.run("last", 1, lambda: line.waiting) == {}

    try:
        asyncio.run(check())
    finally:
        free.set()
    return order


def test_users_take_turns_at_large_work():
    """However much one of them sends."""
    pieces = [(f"a{i}", "ann", 1) for i in range(6)] + [("b0", "ben", 9), ("b1", "ben", 9)]
    assert in_line(pieces) == ["a0", "b0", "a1", "b1", "a2", "a3", "a4", "a5"]


def test_small_work_of_a_user_is_done_before_large_work():
    assert in_line([("large", "ann", 9), ("as large", "ann", 9), ("small", "ann", 1)]) == [
        "small",
        "large",
        "as large",
    ]


def test_work_that_waits_is_bounded():
    """The last of the user that has the most is refused, not whoever comes when there is no room."""
    pieces = [*((f"a{i}", "ann", 1) for i in range(4)), ("b", "ben", 9), ("c", "cat", 9)]
    refused = " 429 --max-queue)"
    assert in_line(pieces, queue=4) == [f"a3{refused}", f"a2{refused}", "a0", "b", "c", "a1"]


def test_work_does_not_wait_longer_than_the_limit_on_seconds():
    pieces = [("a", "ann", 1), ("b", "ben", 1)]
    late = " 504 --max-seconds)"
    assert in_line(pieces, seconds=0.05) == [f"a{late}", f"b{late}"]


def test_a_request_is_handled_in_the_turn_of_its_user(files, tmp_path, monkeypatch):
    """Over HTTP and a WebSocket, by the name behind its token."""
    tokens, users = {}, []
    for name in ("ann", "ben"):
        token, line = new_token(name)
        tokens[name] = token
        with (tmp_path / "tokens").open("a") as file:
            file.write(f"{line}\n")
    before = Line.run

    async def noted(line: Line, user: str, *arguments):
        users.append(user)
        return await before(line, user, *arguments)

    monkeypatch.setattr(Line, "run", noted)

    async def check(replica: Replica) -> None:
        body = {"text": LONG[: LARGE - 20]}
        for name, token in tokens.items():
            headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + token.encode())]
            status, _ = await ask(replica, "POST", "/v1/sessions/a/feed", body, headers)
            assert status == 200 and {*users} == set()
            status, _ = await ask(replica, "POST", "/v1/sessions/a/feed", {"text": LONG}, headers)
            assert status == 200 and {*users} == {name}
            users.clear()
            messages = [
                {"type": "websocket.connect"},
                {"type": "websocket.receive", "text": json.dumps({"text": LONG})},
            ]
            await socket(replica, "/v1/sessions/a/stream", messages, headers)
            assert {*users} == {name}
            users.clear()

    served(files, check, token_file=tmp_path / "tokens")


@pytest.mark.parametrize("name", ["dt", "values"])
def test_a_step_that_is_too_long_has_no_digest(monkeypatch, name):
    def refuse(*_: object) -> str:
        raise AssertionError("the request was digested")

    monkeypatch.setattr(steps, "identified", refuse)
    with pytest.raises(
        Problem, match=f"{name} has 101 steps; accepted: 1 to 100 .--max-tokens."
    ) as problem:
        steps.parse("feed", {"request_id": "a", name: [1] * 101}, Limits(tokens=100))
    assert problem.value.status == 413


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_values_written_in_parts(value):
    assert written(value) == json.dumps(value).encode()
    assert "".join(parts_of(value, SORTED)) == json.dumps(value, sort_keys=True)


def test_numbers_written_in_parts():
    numbers = np.random.default_rng(1).normal(size=3 * BLOCK + 5).astype(np.float32)
    numbers[[0, BLOCK, -1]] = -0.0, np.float32(-1e-30), -0.0
    for shape in (-1, (5, -1)):
        sent = numbers[: 3 * BLOCK + 3 if shape == -1 else 3 * BLOCK - 2].reshape(shape)
        found = np.float32(json.loads(encoded({"logits": sent}))["logits"])
        assert found.tobytes() == sent.tobytes() and found.shape == sent.shape


@pytest.mark.parametrize("start", [0, 1, 40, 69])
def test_scores_of_a_part(files, start):
    """What is scored from `start` on is what a score of everything says, whatever the chunks; the prompt before
    needs no logits."""

    async def scored(start: int, **limits: int) -> tuple[Scored, list[str | None]]:
        engine = Engine("lm", Model.load(files["lm"]), Limits(**limits))
        run, logits = engine.run, []

        async def noted(key, step, *arguments):
            logits.extend([step.logits] * len(step.tokens))
            return await run(key, step, *arguments)

        engine.run = noted
        tokens = [i * 7 % 27 for i in range(70)]
        found = await score(engine, tokens, start, 3, "user", engine.limits)
        await engine.close(drain=False)
        return found, logits

    whole, _ = asyncio.run(scored(0))
    part, logits = asyncio.run(scored(start, numbers=27 * 16, tokens=30))
    assert (part.log_probs, part.top) == (whole.log_probs[start:], whole.top[start:])
    unscored = max(0, start - 1)
    assert logits == [None] * unscored + ["each"] * (70 - unscored)
    model = Model.load(files["lm"])
    assert part.shown(model) == {name: value[start:] for name, value in whole.shown(model).items()}


@pytest.mark.parametrize("name", ["lm", "words", "ids"])
def test_alternatives_are_named_as_the_tokens_are(files, name):
    """OpenAI's clients look a token up among its alternatives."""
    model = Model.load(files[name])

    async def check() -> None:
        engine = Engine(name, model, Limits())
        tokens = [i * 5 % model.vocab_size for i in range(90)]
        found = (await score(engine, tokens, 0, model.vocab_size, "user", Limits())).shown(model)
        for i, (text, top) in enumerate(zip(found["tokens"], found["top_logprobs"], strict=True)):
            assert top is None if i == 0 else top[text] == found["token_logprobs"][i]
        await engine.close(drain=False)

    asyncio.run(check())


def test_the_likeliest_of_equals_are_the_first():
    found = Scored([0, 1], 1)
    found.add(np.float64([[-1, -3, -1, -2, -1, -3]]), 4)
    assert [*found.top[0].items()] == [(0, -1.0), (2, -1.0), (4, -1.0), (3, -2.0)]


def test_halves_of_characters_do_not_pile_up():
    """Tokens that are bytes of no character are decoded a few at a time, however many come."""
    sizes = []

    def decode(tokens: list[int]) -> str:
        sizes.append(len(tokens))
        return "\ufffd" * len(tokens)

    parts = TextParts(SimpleNamespace(decode=decode))
    text = "".join(parts.add([0x80]) for _ in range(1_000)) + parts.close()
    assert text == "\ufffd" * 1_000 and max(sizes) <= WINDOW + 1


def test_events_that_waited_are_sent_as_one(files):
    """A client that reads late gets what was generated meanwhile in few events."""

    async def check() -> None:
        engine, parts = Engine("lm", Model.load(files["lm"]), Limits()), []

        async def emit(tokens: list[int]) -> None:
            parts.append(tokens)
            while len(parts) == 1 and engine.streams.stats()["finished"] == 0:
                await asyncio.sleep(0.001)

        done = await engine.run("s", Step("generate", n=300), 0, "user", 30.0, emit)
        sent = [token for part in parts for token in part]
        assert sent == done.event.tokens.tolist() and len(parts) <= 3
        await engine.close(drain=False)

    asyncio.run(check())


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/sessions/a/generate"])
def test_long_stops_are_refused(server, path):
    body = {"n": 1, "stop": ["a" * (LONGEST_STOP + 1)]}
    answer = server.ask("POST", path, body)
    assert answer.status == 400 and f"1 to {LONGEST_STOP} characters" in answer.json["detail"]


def test_an_error_does_not_write_the_whole_value():
    class Endless(dict):
        def items(self):
            return ((str(i), i) for i in itertools.count())

    assert shown(Endless(a=1)).startswith('{"0": 0, "1": 1, ') and len(shown(Endless(a=1))) == 60
    assert shown(["x"] * 3) == '["x", "x", "x"]'


@pytest.mark.parametrize("path", ["/v1/sessions/a/feed", "/v1/completions"])
def test_a_list_that_is_too_long_is_not_looked_at(files, monkeypatch, path):
    def refuse(*_: object) -> None:
        raise AssertionError("the list was converted")

    async def check(replica: Replica) -> None:
        monkeypatch.setattr(steps, "integers", refuse)
        body = {"tokens" if "feed" in path else "prompt": [1] * 101}
        status, answer = await ask(replica, "POST", path, body)
        assert status == 413 and "1 to 100 (--max-tokens)" in answer["detail"]

    served(files, check, tokens=100)
