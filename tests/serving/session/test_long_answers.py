"""A session holds at most two states, however long its answers are, and each request is still executed once."""

from __future__ import annotations

import asyncio

import pytest

from tsm.runtime.serving.session.answered import KEPT, answered, remembered
from tsm.runtime.serving.store.base import Put, Row
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.transport.problems import Problem

from .served import ask, sessions_of

LONG = [
    ("feed", {"tokens": [*range(27)] * 40, "dt": 0.5, "logits": "each", "top": 3}),
    ("score", {"text": "the quick brown fox " * 200, "texts": True}),
    ("generate", {"n": 3000, "seed": 3, "temperature": 0.7, "text": "once upon "}),
]


def _same(one: dict, other: dict) -> bool:
    """Whether two answers are the same, whatever was stored when they were given."""
    return {**one, "durable_position": 0} == {**other, "durable_position": 0}


@pytest.mark.parametrize("behind", [False, True], ids=["through", "behind"])
def test_a_long_answer_is_given_again(files, opened, behind):
    """By the same server, after a restart, and by another server; it is not executed again. The session then
    continues as if nothing had happened."""

    async def main():
        store, at = opened.open(), "user/s"
        async with sessions_of(files["lm"], store, behind=behind) as first:
            said, position = [], 0
            for number, (action, values) in enumerate(LONG):
                values = {**values, "request_id": str(number)}
                said.append(await ask(first, "user", "s", action, **values))
                for _ in range(2):
                    again = await ask(first, "user", "s", action, **values)
                    assert _same(again, said[-1]) and again["position"] > position
                position = again["position"]
                row = await first.look("user", "s")
                assert len(row.answer) <= len(row.blob) < len(str(again)) / 5
                assert row.position == position
            held = first.hot[at]
            assert max(len(row.answer) for row in (held.row, held.stored)) <= len(row.blob)
        async with sessions_of(files["lm"], opened.open(), behind=behind) as second:
            again = await ask(second, "user", "s", action, **values)
            assert _same(again, said[-1])
            with pytest.raises(Problem, match="was done, and its answer is not kept") as older:
                await ask(second, "user", "s", "score", **LONG[1][1], request_id="1")
            assert (older.value.status, older.value.more["position"]) == (409, position)
            with pytest.raises(Problem, match="was the id of another request"):
                await ask(second, "user", "s", "generate", n=1, request_id="2")
            after = await ask(second, "user", "s", "generate", n=5, seed=1)
            assert after["position"] == position + 5
        return after["tokens"]

    async def alone():
        async with sessions_of(files["lm"], MemoryStore()) as one:
            for action, values in LONG:
                await ask(one, "user", "s", action, **values)
            return (await ask(one, "user", "s", "generate", n=5, seed=1))["tokens"]

    assert asyncio.run(main()) == asyncio.run(alone())


def test_a_long_answer_of_a_session_that_starts_again_and_ends(files, opened):
    async def main():
        action, values = LONG[0]
        async with sessions_of(files["lm"], opened.open()) as sessions:
            await ask(sessions, "user", "s")
            one = {**values, "start": True, "end": True, "request_id": "x"}
            said = [await ask(sessions, "user", "s", action, **one) for _ in range(3)]
            assert said[0] == said[1] == said[2] and said[0]["position"] == 40 * 27
            assert sessions.room.stored == 0 and sessions.room.ended == 1
        async with sessions_of(files["lm"], opened.open()) as sessions:
            assert await ask(sessions, "user", "s", action, **one) == said[0]
            assert (await ask(sessions, "user", "s"))["position"] == 1  # another one of that name

    asyncio.run(main())


def test_a_long_answer_of_an_ended_session_of_the_second_model(files, opened):
    models = {"m": files["other"], "n": files["lm"]}

    async def main():
        action, values = LONG[0]
        one = {**values, "end": True, "request_id": "x"}  # it names no model: the session has one
        async with sessions_of(models, opened.open()) as sessions:
            await ask(sessions, "user", "s", model="n", tokens=[1])
            said = [await ask(sessions, "user", "s", action, **one) for _ in range(2)]
        async with sessions_of(models, opened.open()) as sessions:
            said.append(await ask(sessions, "user", "s", action, **one))
        assert said[0] == said[1] == said[2]

    asyncio.run(main())


@pytest.mark.parametrize("end", [False, True])
def test_a_long_answer_of_another_instruction_set(files, opened, end):
    """It is not computed again, since other tokens could be drawn; the next request is."""

    async def main():
        action, values = LONG[2]
        one, store = {**values, "end": end, "request_id": "x"}, opened.open()
        async with sessions_of(files["lm"], store) as sessions:
            position = (await ask(sessions, "user", "s", action, **one))["position"]
        store = opened.open()
        row = store.read("user/s")
        (version,) = store.apply([Put("user/s", row._replace(level="abacus"))])
        assert isinstance(version, int)
        async with sessions_of(files["lm"], opened.open()) as sessions:
            for _ in range(2):
                with pytest.raises(Problem, match="was computed with abacus") as refused:
                    await ask(sessions, "user", "s", action, **one)
                where = 0 if end else position
                assert (refused.value.status, refused.value.more["position"]) == (409, where)
            two = {**one, "request_id": "y"}
            said = [await ask(sessions, "user", "s", action, **two) for _ in range(2)]
            assert said[0] == said[1] and said[0]["position"] == where + len(said[0]["tokens"]) + 10

    asyncio.run(main())


def test_a_long_answer_of_weights_that_are_gone(files, opened):
    """The request is not executed again; the client learns where the session is."""

    async def main():
        action, values = LONG[0]
        one = {**values, "request_id": "x"}
        async with sessions_of(files["lm"], opened.open(), replay=9) as sessions:
            await ask(sessions, "user", "s", action, **one)
        async with sessions_of(files["other"], opened.open(), replay=9) as sessions:
            with pytest.raises(Problem, match="done, and its answer, too long to keep") as refused:
                await ask(sessions, "user", "s", action, **one)
            assert (refused.value.status, refused.value.more["position"]) == (409, 9)

    asyncio.run(main())


def test_a_long_answer_after_a_reload(files, opened, tmp_path):
    """The old weights are still there, although the session continues with the new ones."""
    path = tmp_path / "m.tsm"
    path.write_bytes(files["lm"].read_bytes())

    async def main():
        action, values = LONG[0]
        one = {**values, "request_id": "x"}
        async with sessions_of(path, opened.open(), replay=9) as sessions:
            said = await ask(sessions, "user", "s", action, **one)
            path.unlink()
            path.write_bytes(files["other"].read_bytes())
            assert await sessions.reload() == ["m"]
            assert await ask(sessions, "user", "s", action, **one) == said
            assert (await sessions.look("user", "s")).position == said["position"]
            assert (await ask(sessions, "user", "s"))["position"] == 9 + 1

    asyncio.run(main())


def test_a_state_in_the_place_of_an_answer_is_marked():
    row = Row(0, b"state", "m")
    for number in range(2 * KEPT):
        answer = b"{}" if number % 3 else b"{" + b"x" * 99 + b"}"
        row = row._replace(**remembered(row, f"{number} digest", answer, b"state"))
        lines = row.request_id.split("\n")
        is_long = not number % 3
        assert (lines[0] == "") == is_long and lines[is_long] == f"{number} digest"
        assert answered(row, f"{number} digest") == (b"state" if is_long else b"{}")
        assert lines[is_long:] == [f"{i} digest" for i in range(number, -1, -1)][:KEPT]
