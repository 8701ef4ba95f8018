"""OpenAI's completions: /v1/completions and /v1/models. A stream lives as long as its request.

`echo` with `logprobs` and `max_tokens` 0 scores a text. A model without a dictionary takes prompts as token
ids; every choice has its `token_ids` beside its text.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..service import Route, Service
from ..streams.engine import Engine
from ..streams.scoring import Scored, score
from ..streams.steps import LONGEST_ID, MOST_STOPS, Step, bounded, encoded
from ..streams.stops import StopText
from ..streams.text import TextParts
from ..transport.fields import Fields, integers, wrong
from ..transport.http import Answer, Request
from ..transport.problems import Problem

MOST_CHOICES = 16
MOST_LOGPROBS = 20
# Fields that are not supported -> accepted values, which change nothing.
NEUTRAL: dict[str, tuple[Any, ...] | None] = {
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "best_of": (1,),
    "logit_bias": ({},),
    "suffix": ("",),
    "user": None,  # any
    "stream_options": None,
}


@dataclass(frozen=True)
class Completion:
    engine: Engine
    prompts: list[list[int]]
    n: int
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...]
    logprobs: int | None
    echo: bool
    stream: bool


@dataclass
class Choice:
    index: int
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str = "length"
    scored: Scored | None = None


class _Stopped(Exception):
    """A stop text was drawn."""


def parse(values: dict[str, Any], service: Service) -> Completion:
    fields, limits = Fields(values), service.limits
    engine = service.models.newest(fields.text("model", None, LONGEST_ID))
    if engine.model.family != "lm":
        raise Problem(400, f"model {engine.name} is a {engine.model.family}; accepted: an lm")
    for name, accepted in NEUTRAL.items():
        value = fields.take(name)
        if accepted is not None and value is not None and value not in accepted:
            raise wrong(name, value, "only its default")
    stop = fields.take("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    good = isinstance(stop, list) and all(isinstance(one, str) and one for one in stop)
    if not good or len(stop) > MOST_STOPS:
        raise wrong("stop", stop, f"a text, or at most {MOST_STOPS} texts")
    found = Completion(
        engine=engine,
        prompts=_prompts(engine, fields.take("prompt", ""), service),
        n=fields.integer("n", 1, 1, MOST_CHOICES),
        max_tokens=fields.integer("max_tokens", 16, 0, limits.tokens, limits.flag("tokens")),
        temperature=fields.number("temperature", 1.0, 0.0, 2.0),
        top_p=fields.number("top_p", 1.0, 0.0, 1.0),
        seed=fields.integer("seed", secrets.randbits(31), 0, 2**62),
        stop=tuple(stop),
        logprobs=fields.integer("logprobs", None, 0, MOST_LOGPROBS),
        echo=fields.flag("echo"),
        stream=fields.flag("stream"),
    )
    fields.end()
    if len(found.prompts) * found.n > MOST_CHOICES:
        raise wrong("n", found.n, f"at most {MOST_CHOICES} choices for all prompts together")
    if found.stream and (len(found.prompts) * found.n > 1 or found.logprobs is not None):
        raise Problem(400, "stream is true; accepted with it: one prompt, n = 1, no logprobs")
    return found


def _prompts(engine: Engine, prompt: Any, service: Service) -> list[list[int]]:
    many = isinstance(prompt, list) and bool(prompt) and type(prompt[0]) is not int
    prompts = prompt if many else [prompt]
    if len(prompts) > MOST_CHOICES:
        raise wrong("prompt", len(prompts), f"at most {MOST_CHOICES} prompts")
    found = []
    for one in prompts:
        if isinstance(one, str):
            tokens: Any = encoded(engine.model, one) if one else []
        else:
            tokens = integers("prompt", one)
        found.append(bounded(tokens, "prompt", service.limits).tolist() if len(tokens) else [])
    return found


async def completions(service: Service, request: Request) -> Answer | None:
    asked = parse(await request.json(), service)
    head = {
        "id": "cmpl-" + secrets.token_hex(12),
        "object": "text_completion",
        "created": int(time.time()),
        "model": asked.engine.name,
    }
    with service.work():
        if asked.stream:
            await _stream(service, request, asked, head)
            return None
        choices = [
            Choice(i, asked.prompts[i // asked.n]) for i in range(len(asked.prompts) * asked.n)
        ]
        await together(_complete(service, request.user, asked, c, None) for c in choices)
    prompt_tokens = sum(map(len, asked.prompts))
    drawn = sum(len(choice.tokens) for choice in choices)
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": drawn}
    usage["total_tokens"] = prompt_tokens + drawn
    return Answer({**head, "choices": [_shown(asked, c) for c in choices], "usage": usage})


async def together(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Waits for all parts; if one fails, cancels the others and waits for them to end before raising its
    error."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stream(
    service: Service, request: Request, asked: Completion, head: dict[str, Any]
) -> None:
    events, choice = request.events(), Choice(0, asked.prompts[0])

    async def emit(text: str, tokens: list[int], reason: str | None) -> None:
        part = {"index": 0, "text": text, "token_ids": tokens, "logprobs": None}
        part["finish_reason"] = reason
        await events.send(json.dumps({**head, "choices": [part]}).encode())

    try:
        if asked.echo and asked.engine.model.tokenizer:
            await emit(asked.engine.model.decode(choice.prompt), choice.prompt, None)
        await _complete(service, request.user, asked, choice, emit)
        await emit("", [], choice.finish_reason)
        await events.send(b"[DONE]")
    except Problem as problem:
        if not events.started:
            raise
        await events.send(json.dumps({"error": error_of(problem)}).encode())
    finally:
        await events.end()


async def _complete(
    service: Service, user: str, asked: Completion, choice: Choice, emit: Any
) -> None:
    """Fill in a choice; `emit` gets its parts as they come."""
    engine, key = asked.engine, f"~{secrets.token_hex(12)}"
    parts = TextParts(engine.model) if engine.model.tokenizer else None
    stops = StopText(asked.stop)

    async def drawn(tokens: list[int]) -> None:
        choice.tokens += tokens
        text, stopped = stops.add(parts.add(tokens) if parts else "")
        choice.text += text
        if emit and (text or not parts):
            await emit(text, tokens, None)
        if stopped:
            raise _Stopped

    try:
        if asked.max_tokens:
            step = Step(
                "generate",
                tokens=_array(choice.prompt),
                n=asked.max_tokens,
                temperature=asked.temperature,
                top_p=asked.top_p,
                seed=asked.seed + choice.index % asked.n,
            )
            await engine.run(key, step, 0, user, service.limits.seconds, drawn)
            rest = stops.close(parts.close() if parts else "")
            choice.text += rest
            if emit and rest:
                await emit(rest, [], None)
    except _Stopped:
        choice.finish_reason = "stop"
    finally:
        await engine.drop(key)
    if asked.logprobs is not None:
        tokens = choice.prompt + choice.tokens
        choice.scored = await score(engine, tokens, asked.logprobs, user, service.limits)


def _array(tokens: list[int]) -> Any:
    return integers("prompt", tokens) if tokens else None


def _shown(asked: Completion, choice: Choice) -> dict[str, Any]:
    model, text, tokens = asked.engine.model, choice.text, choice.tokens
    if asked.echo:
        tokens = choice.prompt + tokens
        text = (model.decode(choice.prompt) if model.tokenizer else "") + text
    scored = choice.scored
    logprobs = scored.shown(model, 0 if asked.echo else len(choice.prompt)) if scored else None
    reason = choice.finish_reason
    shown = {"index": choice.index, "text": text, "token_ids": tokens}
    return {**shown, "logprobs": logprobs, "finish_reason": reason}


async def models(service: Service, request: Request) -> Answer:
    return Answer({"object": "list", "data": [_model(e) for e in _newest(service)]})


async def model(service: Service, request: Request, name: str) -> Answer:
    return Answer(_model(service.models.newest(name)))


def _newest(service: Service) -> list[Engine]:
    return [engines[0] for engines in service.models.engines.values()]


def _model(engine: Engine) -> dict[str, Any]:
    found = engine.model
    facts = {
        "family": found.family,
        "weights": found.fingerprint,
        "version": found.checksum,
        "takes": "tokens" if found.takes_tokens else "values",
        "inputs": found.vocab_size if found.takes_tokens else found.input_size,
        "outputs": found.output_size,
        "columns": found.columns,
        "labels": found.labels,
        "targets": found.targets,
        "takes_dt": found.takes_dt,
        "text": found.tokenizer is not None,
        "tokenizer": found.tokenizer,
        "dtype": found.dtype,
        "level": found.level,
        "stream_bytes": found.stream_bytes,
    }
    return {"id": engine.name, "object": "model", "created": 0, "owned_by": "tsm", **facts}


def error_of(problem: Problem) -> dict[str, Any]:
    """The error in the form that OpenAI's clients expect."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    return {"message": problem.detail, "type": kind, "param": None, "code": problem.status}


NAMES = {"completions", "models"}
ROUTES: list[Route] = [
    ("POST", "/v1/completions", "completions", completions),
    ("GET", "/v1/models", "models", models),
    ("GET", "/v1/models/([^/]+)", "models", model),
]
