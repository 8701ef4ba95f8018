"""OpenAI's completions: /v1/completions and /v1/models. A stream lives as long as its request.

`echo` with `logprobs` and `max_tokens` 0 scores a text. A model without a dictionary takes prompts as token
ids; every choice has its `token_ids` beside its text.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..service import Route, Service
from ..streams.answers import LETTERS
from ..streams.engine import Engine, in_bounds
from ..streams.scoring import Scored, score
from ..streams.steps import LONGEST_ID, Step, bounded, encoded, stop_texts, token_list
from ..streams.stops import StopText
from ..streams.text import TextParts
from ..transport.deadline import within
from ..transport.fields import Fields, wrong
from ..transport.http import Answer, Request
from ..transport.off_loop import off_loop, written
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

    @property
    def numbers(self) -> int:
        """The most tokens and log-probabilities that the answer may have."""
        tokens = len(self.prompts) * self.max_tokens + self.echo * sum(map(len, self.prompts))
        return self.n * tokens * (1 if self.logprobs is None else 2 + self.logprobs)


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


def parse(service: Service, values: dict[str, Any]) -> Completion:
    fields, limits = Fields(values), service.limits
    engine = service.models.newest(fields.text("model", None, LONGEST_ID))
    if engine.model.family != "lm":
        raise Problem(400, f"model {engine.name} is a {engine.model.family}; accepted: an lm")
    for name, accepted in NEUTRAL.items():
        value = fields.take(name)
        if accepted is not None and value is not None and value not in accepted:
            raise wrong(name, value, "only its default")
    completion = Completion(
        engine=engine,
        prompts=_prompts(engine, fields.take("prompt", ""), service),
        n=fields.integer("n", 1, 1, MOST_CHOICES),
        max_tokens=fields.integer("max_tokens", 16, 0, limits.tokens, limits.flag("tokens")),
        temperature=fields.number("temperature", 1.0, 0.0, 2.0),
        top_p=fields.number("top_p", 1.0, 0.0, 1.0),
        seed=fields.integer("seed", secrets.randbits(31), 0, 2**62),
        stop=stop_texts(fields),
        logprobs=fields.integer("logprobs", None, 0, MOST_LOGPROBS),
        echo=fields.flag("echo"),
        stream=fields.flag("stream"),
    )
    fields.end()
    if len(completion.prompts) * completion.n > MOST_CHOICES:
        raise wrong("n", completion.n, f"at most {MOST_CHOICES} choices for all prompts together")
    if completion.stream and (
        len(completion.prompts) * completion.n > 1 or completion.logprobs is not None
    ):
        raise Problem(400, "stream is true; accepted with it: one prompt, n = 1, no logprobs")
    in_bounds(0 if completion.stream else completion.numbers, limits)
    return completion


def _prompts(engine: Engine, prompt: Any, service: Service) -> list[list[int]]:
    many = isinstance(prompt, list) and bool(prompt) and type(prompt[0]) is not int
    prompts = prompt if many else [prompt]
    if len(prompts) > MOST_CHOICES:
        raise wrong("prompt", len(prompts), f"at most {MOST_CHOICES} prompts")
    token_lists = []
    for one in prompts:
        if isinstance(one, str) and one:
            tokens = encoded(engine.model, one)
        else:
            tokens = token_list("prompt", [] if one == "" else one, service.limits)
        if len(tokens):
            bounded(tokens, "prompt", service.limits)
            outside = tokens[(tokens < 0) | (tokens >= engine.model.vocab_size)]
            if len(outside):
                raise wrong("prompt", int(outside[0]), f"tokens 0 to {engine.model.vocab_size - 1}")
        token_lists.append(tokens.tolist())
    return token_lists


async def completions(service: Service, request: Request) -> Answer | None:
    completion = await request.parsed(partial(parse, service))
    head = {
        "id": "cmpl-" + secrets.token_hex(12),
        "object": "text_completion",
        "created": int(time.time()),
        "model": completion.engine.name,
    }
    with service.work():
        if completion.stream:
            await _stream(service, request, completion, head)
            return None
        limits = service.limits
        try:
            return Answer(await within(limits.seconds, _whole(service, request, completion, head)))
        except asyncio.TimeoutError as error:
            flag = limits.flag("seconds")
            detail = f"the completion took over {limits.seconds:g} s ({flag})"
            raise Problem(504, detail) from error


async def _whole(
    service: Service, request: Request, completion: Completion, head: dict[str, Any]
) -> bytes:
    """The answer with all choices, as JSON."""
    choices = [
        Choice(i, completion.prompts[i // completion.n])
        for i in range(len(completion.prompts) * completion.n)
    ]
    await together(_complete(service, request.user, completion, c, None) for c in choices)
    prompt_tokens = sum(map(len, completion.prompts))
    drawn = sum(len(choice.tokens) for choice in choices)
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": drawn}
    usage["total_tokens"] = prompt_tokens + drawn

    def answer() -> bytes:
        return written(
            {**head, "choices": [_shown(completion, c) for c in choices], "usage": usage}
        )

    scores = 1 if completion.logprobs is None else LETTERS
    return await off_loop(completion.numbers * scores, answer)


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
    service: Service, request: Request, completion: Completion, head: dict[str, Any]
) -> None:
    events, choice = request.events(), Choice(0, completion.prompts[0])

    async def emit(text: str, tokens: list[int], reason: str | None) -> None:
        part = {"index": 0, "text": text, "token_ids": tokens, "logprobs": None}
        part["finish_reason"] = reason
        await events.send(json.dumps({**head, "choices": [part]}).encode())

    try:
        if completion.echo and completion.engine.model.tokenizer:
            await emit(completion.engine.model.decode(choice.prompt), choice.prompt, None)
        await _complete(service, request.user, completion, choice, emit)
        await emit("", [], choice.finish_reason)
        await events.send(b"[DONE]")
    except Problem as problem:
        if not events.started:
            raise
        await events.send(json.dumps({"error": error_of(problem)}).encode())
    finally:
        await events.end()


async def _complete(
    service: Service, user: str, completion: Completion, choice: Choice, emit: Any
) -> None:
    """Fill in a choice; `emit` gets its parts as they come."""
    engine, key = completion.engine, f"~{secrets.token_hex(12)}"
    parts = TextParts(engine.model) if engine.model.tokenizer else None
    stops = StopText(completion.stop)

    async def drawn(tokens: list[int]) -> None:
        choice.tokens += tokens
        text, stopped = stops.add(parts.add(tokens) if parts else "")
        choice.text += text
        if emit and (text or not parts):
            await emit(text, tokens, None)
        if stopped:
            raise _Stopped

    try:
        if completion.max_tokens:
            step = Step(
                "generate",
                tokens=np.array(choice.prompt, np.int64) if choice.prompt else None,
                n=completion.max_tokens,
                temperature=completion.temperature,
                top_p=completion.top_p,
                seed=completion.seed + choice.index % completion.n,
            )
            part_by_part = drawn if emit or completion.stop else None
            done = await engine.run(key, step, 0, user, service.limits.seconds, part_by_part)
            if part_by_part is None:
                choice.tokens = done.event.tokens.tolist()
                if parts:
                    decode = engine.model.decode
                    choice.text = await off_loop(len(choice.tokens), decode, choice.tokens)
            rest = stops.close(parts.close() if parts else "")
            choice.text += rest
            if emit and rest:
                await emit(rest, [], None)
    except _Stopped:
        choice.finish_reason = "stop"
    finally:
        await engine.drop(key)
    if completion.logprobs is not None:
        tokens, start = choice.prompt + choice.tokens, 0 if completion.echo else len(choice.prompt)
        choice.scored = await score(
            engine, tokens, start, completion.logprobs, user, service.limits
        )


def _shown(completion: Completion, choice: Choice) -> dict[str, Any]:
    model, text, tokens = completion.engine.model, choice.text, choice.tokens
    if completion.echo:
        tokens = choice.prompt + tokens
        text = (model.decode(choice.prompt) if model.tokenizer else "") + text
    logprobs = choice.scored.shown(model) if choice.scored else None
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
    model = engine.model
    facts = {
        "family": model.family,
        "weights": model.fingerprint,
        "version": model.checksum,
        "takes": "tokens" if model.takes_tokens else "values",
        "inputs": model.vocab_size if model.takes_tokens else model.input_size,
        "outputs": model.output_size,
        "columns": model.columns,
        "labels": model.labels,
        "targets": model.targets,
        "takes_dt": model.takes_dt,
        "text": model.tokenizer is not None,
        "tokenizer": model.tokenizer,
        "dtype": model.dtype,
        "level": model.level,
        "stream_bytes": model.stream_bytes,
    }
    return {"id": engine.name, "object": "model", "created": 0, "owned_by": "tsm", **facts}


def error_of(problem: Problem) -> dict[str, Any]:
    """The error in the form that OpenAI's clients expect."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    return {"message": problem.detail, "type": kind, "param": None, "code": problem.status}


PATHS = re.compile("/v1/(?!sessions|peers)")  # of OpenAI's API, including those that are not served
ROUTES: list[Route] = [
    ("POST", "/v1/completions", "completions", completions),
    ("GET", "/v1/models", "models", models),
    ("GET", "/v1/models/([^/]+)", "models", model),
]
