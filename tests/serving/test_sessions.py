"""The sessions API over real sockets: the same results as a local stream, kept across requests."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from tsm.runtime import Model, TsmError
from tsm.runtime.serving.session.replay import extend_tail, rebuilt
from tsm.runtime.serving.session.room import RECOUNT
from tsm.runtime.serving.session.sessions import Sessions
from tsm.runtime.serving.store.base import Put, Remove, Row, StoreError
from tsm.runtime.serving.store.commits import Commits
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.streams.models import Models, Source
from tsm.runtime.serving.streams.steps import parse
from tsm.runtime.serving.transport.access import new_token
from tsm.runtime.serving.transport.limits import Keeping, Limits
from tsm.runtime.serving.transport.problems import Problem

from .server_process import events, serving

TEXT = "the quick brown fox jumps over the lazy dog"


def test_score_feed_and_generate(server, model, name):
    alone, at = model.create_stream(), f"/v1/sessions/{name}"
    for part in (TEXT[:7], TEXT[7:8], TEXT[8:]):
        answer = server.post(f"{at}/score", text=part)
        assert np.float32(answer["log_probs"]).tolist() == alone.score(model.encode(part)).tolist()
        assert answer["position"] == alone.position
    tokens = [3, 1, 4]
    answer = server.post(f"{at}/feed", tokens=tokens, logits="each", dt=[1, 2.5, 0.5])
    assert np.float32(answer["logits"]).tolist() == alone.feed(tokens, [1, 2.5, 0.5]).tolist()
    last = alone.feed([1], 2.0, last_only=True)
    answer = server.post(f"{at}/feed", tokens=[1], dt=2.0, logits="last", top=2)
    assert np.float32(answer["logits"]).tolist() == last.tolist()
    best = np.argsort(-last)[:2].tolist()
    assert [one["token"] for one in answer["top"]] == best
    assert [one["text"] for one in answer["top"]] == [model.decode([i]) for i in best]
    assert answer["top"][0]["log_prob"] == pytest.approx(
        float(last.max() - np.log(np.exp(last).sum())), abs=1e-5
    )
    drawn = alone.generate(6, temperature=0.7, top_k=9, top_p=0.9, seed=5).tolist()
    options = {"n": 6, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "seed": 5}
    assert server.post(f"{at}/generate", **options) == {
        "position": alone.position,
        "tokens": drawn,
        "text": model.decode(drawn),
        "finish_reason": "length",
    }
    assert server.get(at)["position"] == alone.position


def test_prompt_stop_and_server_sent_events(server, model, name):
    alone = model.create_stream()
    alone.feed(model.encode("the "))
    drawn = alone.generate(12, seed=8).tolist()
    stop = drawn[7]
    drawn = drawn[: drawn.index(stop) + 1]
    body = {"text": "the ", "n": 12, "seed": 8, "stop": [model.decode([stop])], "stream": True}
    answer = server.ask("POST", f"/v1/sessions/{name}/generate", body)
    assert answer.headers["content-type"] == "text/event-stream"
    *parts, (last, done) = events(answer.body)
    assert [token for _, part in parts for token in part["tokens"]] == drawn
    assert "".join(part["text"] for _, part in parts) == model.decode(drawn)
    assert (last, done["tokens"], done["finish_reason"]) == ("done", drawn, "stop")
    assert server.get(f"/v1/sessions/{name}")["position"] == done["position"] == 4 + len(drawn)


def test_models_of_numbers(server, files, name):
    model = Model.load(files["tagger"])
    rows = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    answer = server.post(
        f"/v1/sessions/{name}/feed",
        model="tagger", values=rows.tolist(), dt=[1, 1, 2, 1], logits="last", top=3,
    )  # fmt: skip
    logits = model.create_stream().feed(rows, [1, 1, 2, 1], last_only=True)
    assert np.float32(answer["logits"]).tolist() == logits.tolist()
    assert [one["label"] for one in answer["top"]] == [
        ["up", "to go", "down"][i] for i in np.argsort(-logits)
    ]


def test_retries(server, model, name):
    at, body = (
        f"/v1/sessions/{name}/score",
        {"text": "abc", "request_id": "1", "expected_position": 0},
    )
    first = server.ask("POST", at, body)
    again = server.ask("POST", at, dict(reversed(body.items())))  # the same, in another order
    assert (again.status, again.body) == (first.status, first.body) == (200, first.body)
    assert server.get(f"/v1/sessions/{name}")["position"] == 3
    late = server.ask("POST", at, {"text": "abc", "expected_position": 0})
    assert (late.status, late.json["position"]) == (409, 3)
    assert late.headers["content-type"] == "application/problem+json"
    assert "expected_position = 0, but the stream is at 3" in late.json["detail"]
    other = server.ask("POST", at, {"text": "x", "request_id": "1"})
    assert other.status == 409 and "was the id of another request" in other.json["detail"]
    assert server.post(at, text="d", request_id="2", expected_position=3)["position"] == 4
    draw = {"n": 4, "seed": 2, "request_id": "3"}
    drawn = server.post(f"/v1/sessions/{name}/generate", **draw)
    streamed = server.ask("POST", f"/v1/sessions/{name}/generate", {**draw, "stream": True})
    assert events(streamed.body) == [("done", drawn)]  # the first answer, without its parts


def test_an_older_request_comes_again(server, name):
    """A request is not executed twice; its answer is kept as long as no later request has an id."""
    at = f"/v1/sessions/{name}/feed"
    asked = [{"tokens": [i, i], "request_id": f"{i}\n\u00e9", "top": 1} for i in range(5)]
    said = [server.post(at, **body) for body in asked]
    assert server.post(at, tokens=[1])["position"] == 11  # without an id
    assert server.post(at, **asked[-1]) == said[-1]
    for body in asked[:-1]:
        again = server.ask("POST", at, body)
        assert (again.status, again.json["position"]) == (409, 11)
        assert "was done, and its answer is not kept" in again.json["detail"]
        other = server.ask("POST", at, {**body, "top": 2})
        assert other.status == 409 and "was the id of another request" in other.json["detail"]
    assert server.get(f"/v1/sessions/{name}")["position"] == 11


def test_state_fork_reset_and_history(server, model, name):
    at = f"/v1/sessions/{name}"
    for part in range(0, 200, 10):
        server.post(f"{at}/feed", tokens=[(part + i) % 27 for i in range(10)])
    state = server.ask("GET", f"{at}/state")
    assert state.headers["tsm-position"] == "200"
    alone = model.create_stream()
    alone.load_state(state.body)
    etag = state.headers["etag"]
    assert server.ask("GET", f"{at}/state", if_none_match=etag).status == 304
    forked = server.post(f"{at}/fork", to=f"{name}-b"[-60:])
    assert forked["position"] == 200
    taken = server.ask("POST", f"{at}/fork", {"to": forked["id"]})
    assert taken.status == 409 and "already" in taken.json["detail"]
    drawn = alone.generate(5, seed=1).tolist()
    assert server.post(f"/v1/sessions/{forked['id']}/generate", n=5, seed=1)["tokens"] == drawn
    assert server.get(at)["position"] == 200
    assert server.post(f"{at}/reset")["position"] == 0
    stale = server.ask("PUT", f"{at}/state", state.body, if_match=etag)
    assert stale.status == 412 and stale.json["position"] == 0
    states = server.get(f"{at}/history")["states"]
    assert [one["position"] for one in states] == [
        70,
        130,
        200,
        0,
    ]  # where 64, 128, 192 were passed
    back = server.post(f"{at}/restore", version=states[2]["version"])
    assert back["position"] == 200
    assert server.ask("GET", f"{at}/state").body == state.body
    assert server.post(f"{at}/generate", n=5, seed=1)["tokens"] == drawn
    moved = server.ask("PUT", f"/v1/sessions/{name[:50]}-moved/state", state.body)
    assert (moved.status, moved.json["position"]) == (200, 200)
    assert server.post(f"/v1/sessions/{name[:50]}-moved/generate", n=5, seed=1)["tokens"] == drawn
    memory = server.get(f"{at}/memory")
    assert [layer["cell"] for layer in memory["layers"]] == ["plstm", "plstm"]
    assert np.float32(memory["layers"][1]["c"]).tolist() == alone.state()["c"][1].tolist()
    assert server.ask("DELETE", at).status == 204
    for method, path in (
        ("GET", at),
        ("DELETE", at),
        ("POST", f"{at}/reset"),
        ("GET", f"{at}/history"),
    ):
        gone = server.ask(method, path)
        assert gone.status == 404 and f"there is no session {name}" in gone.json["detail"]


def test_completions(server, model, files):
    alone = model.create_stream()
    alone.feed(model.encode("once upon "))
    drawn = alone.generate(20, temperature=0.8, seed=4).tolist()
    text = model.decode(drawn)
    ask = {"model": "lm", "prompt": "once upon ", "max_tokens": 20, "temperature": 0.8, "seed": 4}
    answer = server.post("/v1/completions", **ask)
    assert answer["choices"][0]["text"] == text
    assert answer["usage"] == {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    stop = text[11:13]
    cut = server.post("/v1/completions", **ask, stop=stop)["choices"][0]
    assert (cut["text"], cut["finish_reason"]) == (text[: text.index(stop)], "stop")
    parts = events(server.ask("POST", "/v1/completions", {**ask, "stream": True}).body)
    assert parts[-1] == ("", "[DONE]")
    choices = [part["choices"][0] for _, part in parts[:-1]]
    assert "".join(choice["text"] for choice in choices) == text
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [
        "length"
    ]
    two = server.post("/v1/completions", **{**ask, "prompt": ["a", "b"], "n": 2})["choices"]
    assert [one["index"] for one in two] == [0, 1, 2, 3]
    ids = server.post("/v1/completions", model="ids", prompt=[1, 2], max_tokens=3, seed=1)
    stream = Model.load(files["ids"]).create_stream()
    stream.feed([1, 2])
    assert ids["choices"][0]["token_ids"] == stream.generate(3, seed=1).tolist()


def test_completions_that_score(server, model):
    """echo, logprobs and max_tokens = 0."""
    tokens = model.encode(TEXT)
    options = {"prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": 3}
    choice = server.post("/v1/completions", **options)["choices"][0]
    found = choice["logprobs"]
    assert choice["text"] == "".join(found["tokens"]) == TEXT
    assert found["token_logprobs"][0] is None and found["text_offset"] == list(range(len(TEXT)))
    scored = model.create_stream().score(tokens)
    assert np.allclose(found["token_logprobs"][1:], scored[1:], atol=1e-5)
    assert all(len(top) == 3 for top in found["top_logprobs"][1:])
    error = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": -1})
    assert error.status == 400 and error.json["error"]["message"] == error.json["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/none", 404),
        ("GET", "/v1/completions", 405),
        ("POST", "/v1/chat/completions", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/completions/", 404),
    ],
)
def test_refusals_in_the_form_of_openai(server, method, path, status):
    answer = server.ask(method, path)
    assert (answer.status, answer.json["error"]["code"]) == (status, status)
    assert answer.json["error"]["message"] == answer.json["detail"]
    assert answer.json["error"]["type"] == "invalid_request_error"
    native = server.ask(method, "/v1/sessions/none/nothing")
    assert native.status == 404 and "error" not in native.json


def test_a_fork_whose_answer_was_lost(server, name):
    """The request is sent again, even if the original is gone meanwhile."""
    at, copy = f"/v1/sessions/{name}", f"{name[:50]}-copy"
    server.post(f"{at}/feed", tokens=[1, 2])
    body = {"to": copy, "request_id": "1"}
    first = server.ask("POST", f"{at}/fork", body)
    server.post(f"{at}/feed", tokens=[3])
    assert server.ask("POST", f"{at}/fork", body).body == first.body
    assert server.ask("DELETE", at).status == 204
    again = server.ask("POST", f"{at}/fork", body)
    assert (again.status, again.body) == (first.status, first.body) == (201, first.body)
    assert again.headers["etag"] == first.headers["etag"]
    for wrong, status in (({"to": copy, "request_id": "2"}, 404), ({"to": copy}, 404)):
        assert server.ask("POST", f"{at}/fork", wrong).status == status
    server.post(f"{at}/feed", tokens=[1])
    other = server.ask("POST", f"{at}/fork", {"to": copy, "request_id": "2"})
    assert other.status == 409 and "already exists" in other.json["detail"]
    assert server.post(f"/v1/sessions/{copy}/feed", tokens=[3])["position"] == 3
    late = server.ask("POST", f"{at}/fork", body)
    assert (late.status, late.json["position"]) == (409, 3)
    assert "its copy has changed since" in late.json["detail"]


def test_kserve(server, model, name):
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [1, 3], "data": [1, 2, 3]}
    alone, ask = model.create_stream(), {"inputs": [tensor]}
    first, second = (alone.feed([1, 2, 3], last_only=True).tolist() for _ in range(2))

    def logits(**parameters):
        answer = server.post("/v2/models/lm/infer", **ask, parameters=parameters)
        assert answer["outputs"][0]["shape"] == [1, 27]
        return np.float32(answer["outputs"][0]["data"]).tolist()

    assert logits() == logits() == first  # without a sequence
    assert [logits(sequence_id=name), logits(sequence_id=name)] == [first, second]
    assert logits(sequence_id=name, sequence_start=True, sequence_end=True) == first
    assert server.ask("GET", f"/v1/sessions/{name}").status == 404
    assert server.get("/v2/models/tagger")["inputs"][0]["shape"] == [-1, 5]
    assert server.get("/v2/health/ready") == {"ready": True}
    wrong = server.ask("POST", "/v2/models/lm/infer", {"inputs": [{**tensor, "shape": [4]}]})
    assert wrong.status == 400 and "shape of tokens" in wrong.json["detail"]


def test_a_fork_may_take_the_name_of_an_ended_session(server, name):
    """The ended session's last answer is still kept, but its name is free."""
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [1], "data": [1]}
    ended = {"sequence_id": name, "sequence_end": True, "request_id": "last"}
    server.post("/v2/models/lm/infer", inputs=[tensor], parameters=ended)
    other = f"{name[:50]}-other"
    server.post(f"/v1/sessions/{other}/feed", tokens=[1, 2])
    assert server.post(f"/v1/sessions/{other}/fork", to=name)["position"] == 2
    assert server.post(f"/v1/sessions/{name}/feed", tokens=[3])["position"] == 3
    assert server.ask("POST", f"/v1/sessions/{other}/fork", {"to": name}).status == 409


def test_kserve_sequences_are_all_or_nothing(server, model, name):
    """A failed start leaves the sequence unchanged; each request, even the one that ends the sequence, is
    executed once."""

    def infer(tokens, **parameters):
        tensor = {"name": "tokens", "datatype": "INT64", "shape": [len(tokens)], "data": tokens}
        body = {"inputs": [tensor], "parameters": {"sequence_id": name, **parameters}}
        return server.ask("POST", "/v2/models/lm/infer", body)

    infer([1, 2])
    assert infer([99], sequence_start=True).status == 400
    assert server.get(f"/v1/sessions/{name}")["position"] == 2
    late = infer([3], expected_position=1)
    assert (late.status, late.json["position"]) == (409, 2)
    lone = model.create_stream()
    for i, tokens in enumerate([[5, 6], [7], [8]]):
        parts = {"sequence_start": i == 0, "sequence_end": i == 2, "request_id": str(i)}
        answer, again = (infer(tokens, **parts) for _ in range(2))
        assert answer.body == again.body and answer.status == 200, again.body
        logits = np.float32(answer.json["outputs"][0]["data"])
        assert logits.tolist() == lone.feed(tokens, last_only=True).tolist()
        assert answer.json["parameters"] == {"position": lone.position}
    for path in ("", "/state", "/history"):
        assert server.ask("GET", f"/v1/sessions/{name}{path}").status == 404
    assert server.ask("DELETE", f"/v1/sessions/{name}").status == 404
    assert infer([1]).json["parameters"] == {"position": 1}  # another one of that name


def test_an_end_does_not_remove_what_another_server_wrote_meanwhile(files):
    """Its request has no id, so that no answer is kept."""
    limits = Limits()
    step = parse("feed", {"tokens": [1, 2], "expected_position": 0}, limits)

    class Between(MemoryStore):
        """Another server writes the session just before it is removed."""

        def apply(self, operations):
            if any(isinstance(one, Remove) for one in operations):
                before, after = self.read("user/s"), self.read("user/other")
                row = after._replace(version=before.version, epoch=before.epoch)
                super().apply([Put("user/s", row)])
            return super().apply(operations)

    async def main():
        store = Between()
        models = Models([Source("m", str(files["lm"]))], limits, "float32", 1)
        sessions = Sessions(models, Commits(store), limits, Keeping())
        await sessions.step("user", "s", step)
        await sessions.step("user", "other", parse("feed", {"tokens": [1, 2, 3]}, limits))
        with pytest.raises(Problem, match="but the stream is at 3") as late:
            await sessions.step("user", "s", step._replace(expected_position=2, end=True))
        assert late.value.status == 409 and store.read("user/s").position == 3
        assert sessions.room.stored == 2
        await models.close()
        await sessions.commits.close()

    asyncio.run(main())


def test_a_refused_request_does_not_take_the_session_over(files):
    """The server that has the session writes on, even if it is in the middle of a step."""
    limits, store = Limits(), MemoryStore()
    sources = [Source("m", str(files["lm"])), Source("m", str(files["other"]))]
    sources.append(Source("ids", str(files["ids"])))
    step = parse("feed", {"tokens": [1], "model": "m"}, limits)

    async def main():
        servers = []
        for _ in range(2):
            models = Models(sources, limits, "float32", 1)
            servers.append(Sessions(models, Commits(store), limits, Keeping()))
        owner, other = servers
        await owner.step("user", "s", step)
        row = store.read("user/s")
        old = owner.models.engines["m"][1].model.checksum
        for wrong, said in (({"version": old}, "to version"), ({"model": "ids"}, "to model m")):
            with pytest.raises(Problem, match=f"the session belongs {said}") as refused:
                await other.step("user", "s", step._replace(**wrong))
            assert refused.value.status == 409 and store.read("user/s") == row
        assert json.loads(await other.step("user", "s", step)) == {"position": 2}
        assert store.read("user/s").epoch != row.epoch
        for one in servers:
            await one.models.close()
            await one.commits.close()

    asyncio.run(main())


def test_removals_at_the_same_time_are_all_counted(files):
    limits = Limits()

    async def main():
        models = Models([Source("m", str(files["lm"]))], limits, "float32", 1)
        sessions = Sessions(models, Commits(MemoryStore()), limits, Keeping())
        for name in "abc":
            await sessions.step("user", name, parse("feed", {"tokens": [1]}, limits))
        assert sessions.room.stored == 3
        await asyncio.gather(*(sessions.remove("user", name) for name in "abc"))
        assert sessions.room.stored == 0
        await models.close()
        await sessions.commits.close()

    asyncio.run(main())


def test_a_refused_session_takes_no_room_in_memory(files):
    limits = Limits(sessions=1)

    async def main():
        models = Models([Source("m", str(files["lm"]))], limits, "float32", 1)
        sessions = Sessions(models, Commits(MemoryStore()), limits, Keeping())
        step = parse("feed", {"tokens": [1]}, limits)
        await sessions.step("user", "a", step)
        for name in "bcd":
            with pytest.raises(Problem, match="--max-sessions") as refused:
                await sessions.step("user", name, step)
            assert refused.value.status == 507
        assert [*sessions.hot] == ["user/a"]
        await models.close()
        await sessions.commits.close()

    asyncio.run(main())


def test_sessions_that_have_expired_make_room(files, opened):
    limits, store = Limits(sessions=2), opened.open()

    async def main():
        models = Models([Source("m", str(files["lm"]))], limits, "float32", 1)
        sessions = Sessions(models, Commits(store), limits, Keeping(seconds=100))
        step = parse("feed", {"tokens": [1]}, limits)
        await sessions.room.sweep()
        for name in "ab":
            await sessions.step("user", name, step)
        with pytest.raises(Problem, match="--max-sessions"):
            await sessions.step("user", "c", step)
        opened.forward(101)
        sessions.room.counted -= RECOUNT
        for name in "cd":
            assert json.loads(await sessions.step("user", name, step)) == {"position": 1}
        assert sessions.room.stored == 2
        await models.close()
        await sessions.commits.close()

    asyncio.run(main())


def test_a_store_that_fails_is_asked_once_for_room(files, monkeypatch):
    """Those who wait are refused; if each asked a store that hangs, the last one would wait for minutes."""
    limits, asked = Limits(sessions=1), []

    async def main():
        models = Models([Source("m", str(files["lm"]))], limits, "float32", 1)
        sessions = Sessions(models, Commits(MemoryStore()), limits, Keeping())
        step = parse("feed", {"tokens": [1]}, limits)
        await sessions.step("user", "a", step)

        async def sweep() -> None:
            asked.append(1)
            await asyncio.sleep(0.05)
            raise StoreError("it hangs")

        monkeypatch.setattr(sessions.room, "sweep", sweep)
        sessions.room.counted -= RECOUNT
        new = [sessions.step("user", name, step) for name in "bcdefg"]
        refused = await asyncio.gather(*new, return_exceptions=True)
        assert sorted(problem.status for problem in refused) == [503, *[507] * 5]
        await models.close()
        await sessions.commits.close()

    asyncio.run(main())
    assert len(asked) == 1


def test_a_reload_that_fails_changes_no_model(files, tmp_path):
    first, second = tmp_path / "first.tsm", tmp_path / "second.tsm"
    first.write_bytes(files["lm"].read_bytes())
    second.write_bytes(files["lm"].read_bytes())

    async def main():
        sources = [Source("first", str(first)), Source("second", str(second))]
        models = Models(sources, Limits(), "float32", 1)
        first.write_bytes(files["other"].read_bytes())
        second.write_bytes(b"no model")
        with pytest.raises(TsmError, match=r"second\.tsm"):
            await models.reload()
        assert [len(engines) for engines in models.engines.values()] == [1, 1]
        second.write_bytes(files["lm"].read_bytes())
        assert await models.reload() == ["first"]
        await models.close()

    asyncio.run(main())


def test_a_replay_does_not_stop_the_event_loop():
    others_went_on = threading.Event()

    class Slow:
        takes_tokens, takes_dt = True, False

        @contextmanager
        def create_stream(self):
            yield self

        def feed(self, inputs, dt, last_only):
            assert others_went_on.wait(60)

        def save_state(self):
            return b"state"

    async def main():
        row = Row(1, b"", tail=extend_tail(b"", np.array([1, 2]), None, keep=8))
        replay = asyncio.ensure_future(rebuilt(SimpleNamespace(model=Slow()), row))
        await asyncio.sleep(0)
        others_went_on.set()
        assert await replay == b"state"

    asyncio.run(main())


def test_sessions_are_listed_by_page(files, tmp_path):
    (ann, first), (ben, second) = new_token("ann"), new_token("ann0")
    (tmp_path / "tokens").write_text(f"{first}\n{second}\n")
    store = f"sqlite:{tmp_path}/states.db"
    with serving(files["lm"], "--store", store, "--token-file", tmp_path / "tokens") as server:
        for server.token, names in ((ann, "cab~"), (ben, "z")):
            for one in names:
                server.post(f"/v1/sessions/{one}/feed", tokens=[1, 2])
        server.token = ann
        page = server.get("/v1/sessions?limit=3")
        assert [one["id"] for one in page["sessions"]] == ["a", "b", "c"] and page["next"] == "c"
        assert page["sessions"][0] == server.get("/v1/sessions/a")
        rest = server.get("/v1/sessions?limit=3&after=c")
        assert [one["id"] for one in rest["sessions"]] == ["~"] and "next" not in rest
        for limit in ("0", "1001", "x", "-1"):
            assert server.ask("GET", f"/v1/sessions?limit={limit}").status == 400
        server.token = ben
        assert [one["id"] for one in server.get("/v1/sessions")["sessions"]] == ["z"]


@pytest.mark.parametrize(("model", "takes"), [("ids", "tokens"), ("tagger", "values")])
def test_text_for_a_model_without_a_dictionary(server, model, takes):
    refused = server.ask("POST", "/v1/sessions/no-words/feed", {"model": model, "text": "a"})
    assert refused.status == 400 and refused.json["detail"].endswith(f"accepted: {takes}")


def test_health_models_and_metrics(server):
    assert server.get("/healthz") == {"status": "ok"} and server.get("/readyz") == {
        "status": "ready"
    }
    assert [one["id"] for one in server.get("/v1/models")["data"]] == ["lm", "ids", "tagger"]
    assert server.get("/v1/models/tagger")["takes"] == "values"
    page = server.ask("GET", "/metrics").body.decode()
    for line in (
        'tsm_requests_total{route="healthz",status="200"}',
        "tsm_sessions_stored",
        "tsm_pool{",
    ):
        assert line in page
