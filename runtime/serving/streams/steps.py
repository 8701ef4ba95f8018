"""What a request does with a stream: feed, score or generate, with every option checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ... import Model, TsmError
from ..transport.fields import Fields, integers, rows, wrong
from ..transport.limits import Limits
from ..transport.off_loop import SORTED, parts_of
from ..transport.problems import Problem, of_core

LONGEST_ID = 128
LONGEST_STOP = 128
MOST_STOPS = 16
MOST_TOP = 100
Chunk = NDArray[np.int64] | NDArray[np.float32]
ChunkT = TypeVar("ChunkT", NDArray[np.int64], NDArray[np.float32], list[Any])


class Step(NamedTuple):
    """A request has at most one of `text`, `tokens` and `values`; see `chunk`."""

    action: str  # feed, score, generate
    text: str | None = None
    tokens: NDArray[np.int64] | None = None
    values: Any = None
    dt: Any = None
    logits: str | None = None  # last, each
    top: int = 0  # how many of the likeliest next tokens or classes to return
    texts: bool = False  # return the text of each scored token
    n: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[Any, ...] = ()
    model: str | None = None
    version: str | None = None  # of the model; "": any; None: any, and left out of the answer
    request_id: str = ""  # with a digest of the request
    expected_position: int | None = None
    start: bool = False  # restart the stream first
    end: bool = False  # remove it afterwards

    @property
    def size(self) -> int:
        """How many characters and numbers `chunk` and `intervals` convert."""
        rows = self.values if isinstance(self.values, list) else []
        width = len(rows[0]) if rows and isinstance(rows[0], list) else 1
        dt = len(self.dt) if isinstance(self.dt, list) else 0
        return len(self.text or "") + len(rows) * width + dt

    def chunk(self, model: Model, limits: Limits) -> Chunk | None:
        """The inputs in the form that the model takes; None if the request has none."""
        if self.text is not None:
            return bounded(encoded(model, self.text), "text", limits)
        if self.tokens is not None:
            _takes(model.takes_tokens, "tokens", "values")
            return bounded(self.tokens, "tokens", limits)
        if self.values is not None:
            _takes(not model.takes_tokens, "values", "tokens")
            return bounded(rows("values", self.values, model.input_size), "values", limits)
        if self.action != "generate":
            names = "text or tokens" if model.takes_tokens else "values"
            raise Problem(400, f"nothing to {self.action}; accepted: {names}")
        return None

    def intervals(self, steps: int) -> float | NDArray[np.float32] | None:
        """dt: one number for all steps, or a list with one per step."""
        if self.dt is None:
            return None
        if type(self.dt) in (int, float):
            try:
                return float(self.dt)
            except OverflowError as error:
                raise wrong("dt", self.dt, "a number of 64 bits") from error
        found = rows("dt", self.dt, None)
        if len(found) != steps:
            raise wrong("dt", self.dt, f"a number, or {steps} numbers")
        return found

    def stops(self, model: Model) -> list[int]:
        return [stop if isinstance(stop, int) else _one_token(model, stop) for stop in self.stop]


def parse(action: str, values: dict[str, Any], limits: Limits, known: Iterable[str] = ()) -> Step:
    """A step from the JSON object of a request. known: fields that the route has taken."""
    if [*values] == ["tokens"] and action != "generate" and values["tokens"] is not None:
        return Step(action, tokens=token_list("tokens", values["tokens"], limits))  # as most are
    fields = Fields(values, known)
    given = [name for name in ("text", "tokens", "values") if fields.has(name)]
    if len(given) > 1:
        raise Problem(400, f"{' and '.join(given)} are given; accepted: one of them")
    options: dict[str, Any] = {
        "text": fields.text("text", None, limits.body),
        "values": fields.take("values"),
        "dt": fields.take("dt"),
        "model": fields.text("model", None, LONGEST_ID),
        "expected_position": fields.integer("expected_position", None, 0, 2**62),
    }
    if (tokens := fields.take("tokens")) is not None:
        options["tokens"] = token_list("tokens", tokens, limits)
    if action == "feed":
        options["logits"] = fields.choice("logits", None, "last", "each")
    if action == "score":
        options["texts"] = fields.flag("texts")
    if action in ("feed", "score"):
        options["top"] = fields.integer("top", 0, 0, MOST_TOP)
    if action == "generate":
        options |= sampling(fields, limits)
        options["n"] = fields.integer("n", None, 1, limits.tokens, limits.flag("tokens"))
        if options["n"] is None:
            raise wrong(
                "n", None, f"an integer from 1 to {limits.tokens} ({limits.flag('tokens')})"
            )
    request_id = fields.text("request_id", "", LONGEST_ID)
    fields.end()
    for name in ("values", "dt"):  # before the digest, which takes half a second for 1 MB
        if isinstance(options[name], list) and options[name]:
            bounded(options[name], name, limits)
    return Step(action, **options, request_id=identified(request_id, [action, values]))


def identified(request_id: str, request: Any) -> str:
    """The id and a digest of its request, in one line; "" if there is no id."""
    if not request_id:
        return ""
    digest = hashlib.sha256()
    for part in parts_of(request, SORTED):
        digest.update(part.encode())
    return f"{json.dumps(request_id, ensure_ascii=False)[1:-1]} {digest.hexdigest()[:24]}"


def sampling(fields: Fields, limits: Limits) -> dict[str, Any]:
    stop = fields.take("stop", [])
    stop = stop if isinstance(stop, list) else [stop]
    if not _are_stops(stop, int, str):
        kinds = f"numbers or texts of 1 to {LONGEST_STOP} characters"
        raise wrong("stop", stop, f"at most {MOST_STOPS} tokens, as {kinds}")
    integers("stop", [one for one in stop if type(one) is int])
    return {
        "temperature": fields.number("temperature", 1.0, 0.0, 100.0),
        "top_k": fields.integer("top_k", 0, 0, 2**31 - 1),
        "top_p": fields.number("top_p", 1.0, 0.0, 1.0),
        "seed": fields.integer("seed", 0, 0, 2**63 - 1),
        "stop": tuple(stop),
    }


def stop_texts(fields: Fields) -> tuple[str, ...]:
    """Texts that end a completion, of any number of tokens."""
    stop = fields.take("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not _are_stops(stop, str):
        longest = f"1 to {LONGEST_STOP} characters"
        raise wrong("stop", stop, f"a text of {longest}, or at most {MOST_STOPS} of them")
    return tuple(stop)


def _are_stops(stop: list[Any], *kinds: type) -> bool:
    return len(stop) <= MOST_STOPS and all(
        type(one) in kinds and (type(one) is int or 1 <= len(one) <= LONGEST_STOP) for one in stop
    )


def encoded(model: Model, text: str) -> NDArray[np.int64]:
    if model.tokenizer is None:
        instead = "tokens" if model.takes_tokens else "values"
        raise Problem(400, f"text is given, but the model has no dictionary; accepted: {instead}")
    try:
        return model.encode(text)
    except TsmError as error:
        raise of_core(error) from error


def token_list(name: str, value: Any, limits: Limits) -> NDArray[np.int64]:
    """A list of integers; one that is too long is refused before it is looked at."""
    if isinstance(value, list) and value:
        bounded(value, name, limits)
    return integers(name, value)


def bounded(chunk: ChunkT, name: str, limits: Limits) -> ChunkT:
    if not 1 <= len(chunk) <= limits.tokens:
        raise Problem(
            413 if len(chunk) else 400,
            f"{name} has {len(chunk)} steps; accepted: 1 to {limits.tokens} ({limits.flag('tokens')})",
        )
    return chunk


def _takes(right: bool, given: str, instead: str) -> None:
    if not right:
        raise Problem(400, f"{given} are given, but the model takes {instead}")


def _one_token(model: Model, text: str) -> int:
    tokens = encoded(model, text)
    if len(tokens) != 1:
        raise wrong("stop", text, f"a text of one token, not of {len(tokens)}")
    return int(tokens[0])
