"""One user at the limit leaves room for the others: over all stores, several servers, restarts and expiry."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tsm.runtime.serving.session.room import RECOUNT
from tsm.runtime.serving.transport.access import new_token
from tsm.runtime.serving.transport.limits import Limits
from tsm.runtime.serving.transport.problems import Problem

from ..server_process import serving
from .served import ask, sessions_of

SHARED = Limits(sessions=100, share=2)


def run(files, opened, check, servers=2, limits=SHARED, users=2, **keeping):
    """`check` gets the sessions of several servers with one store."""

    async def main():
        async with AsyncExitStack() as stack:
            path = files["lm"]
            await check(
                *[
                    await stack.enter_async_context(
                        sessions_of(path, opened.open(), limits, users, **keeping)
                    )
                    for _ in range(servers)
                ]
            )

    asyncio.run(main())


async def refused(call, status=507, flag="--max-share"):
    with pytest.raises(Problem) as problem:
        await call
    assert problem.value.status == status and flag in problem.value.detail, problem.value.detail


@pytest.mark.parametrize("behind", [False, True], ids=["through", "behind"])
def test_a_user_at_the_limit(files, opened, behind):
    async def check(first, second):
        await ask(first, "ann", "a")
        await ask(second, "ann", "b")
        await first.writes.settle_all(), await second.writes.settle_all()
        for sessions in (first, second):
            detail = "there are 2 sessions of this user; accepted: 2 (--max-share)"
            await refused(ask(sessions, "ann", "c"), flag=detail)
            await refused(sessions.fork("ann", "a", "d"))
            await refused(sessions.replace_state("ann", "e", lambda m: m.fresh(), create=True))
        for name in "ab":
            assert (await ask(second, "ann", name))["position"] == 2  # those go on
            await ask(first, "ben", name)
        await second.remove("ann", "a")
        await first.fork("ann", "b", "c")
        await refused(ask(second, "ann", "a"))

    run(files, opened, check, behind=behind)


def test_a_limit_outlives_servers_and_sessions_that_expire_do_not_count(files, opened):
    async def create(sessions, *_):
        for name in "ab":
            await ask(sessions, "ann", name)

    async def again(sessions, *_):
        await refused(ask(sessions, "ann", "c"))
        opened.forward(101)
        sessions.room.counted -= RECOUNT
        for name in "cb":
            assert (await ask(sessions, "ann", name))["position"] == 1
        await refused(ask(sessions, "ann", "d"))

    run(files, opened, create, seconds=100)
    run(files, opened, again, seconds=100)


def test_sessions_that_are_created_at_the_same_time(files, opened):
    """By two servers: no more than the share are stored, and those are answered."""

    async def check(*servers):
        calls = [ask(servers[i % 2], "ann", f"s{i}") for i in range(20)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, dict) for one in outcomes) == 5
        problems = [one for one in outcomes if not isinstance(one, dict)]
        assert {(one.status, "--max-share" in one.detail) for one in problems} == {(507, True)}
        assert len(await servers[0].page("ann", "", 100)) == 5

    run(files, opened, check, limits=Limits(sessions=100, share=5))


def test_the_kept_answers_of_ended_sessions_have_the_same_limit(files, opened):
    async def check(first, second):
        end = {"tokens": [1], "end": True, "request_id": "x"}
        for name in "abc":  # the third takes the place of none
            call = ask(first, "ann", name, **end)
            await (refused(call, 503) if name == "c" else call)
        await ask(second, "ben", "c", **end)
        for name in "cd":
            await ask(first, "ann", name)  # they do not count as sessions
        await refused(ask(second, "ann", "c", **end), 503)
        await refused(ask(first, "ann", "e"))
        opened.forward(61)
        second.room.counted -= RECOUNT
        await ask(second, "ann", "c", **end)

    run(files, opened, check)


def test_equal_parts(files, opened):
    """Without --max-share, the users with tokens share the sessions; a single one may have them all."""

    async def two(sessions, *_):
        for name in "ab":
            await ask(sessions, "ann", name)
        await refused(ask(sessions, "ann", "c"))

    async def one(sessions, *_):
        for name in "cd":
            await ask(sessions, "ann", name)
        await refused(ask(sessions, "ann", "e"), flag="--max-sessions")

    run(files, opened, two, limits=Limits(sessions=4), servers=1)
    run(files, opened, one, limits=Limits(sessions=4), servers=1, users=1)


def test_tokens(files, tmp_path):
    """A user with two tokens has one share; a token that is added makes the shares smaller."""
    (ann, first), (also_ann, second), (ben, third) = map(new_token, ("ann", "ann", "ben"))
    (tmp_path / "tokens").write_text(f"{first}\n{second}\n{third}\n")
    with serving(files["lm"], "--max-sessions", 4, "--token-file", tmp_path / "tokens") as server:

        def feed(token, name):
            server.token = token
            return server.ask("POST", f"/v1/sessions/{name}/feed", {"tokens": [1]})

        assert [feed(token, f"s{token[-5:]}").status for token in (ann, also_ann)] == [200] * 2
        full = feed(also_ann, "c")
        assert full.status == 507 and "2 sessions of this user; accepted: 2" in full.json["detail"]
        assert [feed(ben, name).status for name in "abc"] == [200, 200, 507]
