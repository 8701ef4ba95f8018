"""The models that are served, by name, each with its older versions, which sessions may still need.

Older weights stay in memory while sessions use them, and the last few anyway, up to --max-weights bytes. Beyond
that, those go first that no session uses, then the oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ... import Model
from ..transport.limits import Limits
from ..transport.problems import Problem
from .engine import Engine

SPARE = 4  # versions of a model that stay even if no session uses them
MOST_CLOSED = 1000  # closed versions that are remembered
Weights = tuple[str, str]  # the name of a model and the fingerprint of its weights


async def none_used() -> set[Weights]:
    return set()


@dataclass(frozen=True)
class Source:
    """`NAME=FILE` on the command line; the name of a bare FILE is its stem."""

    name: str
    path: str

    @staticmethod
    def parse(text: str) -> Source:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).stem, text
        if not name or not path or not all(c.isalnum() or c in "-_." for c in name):
            raise ValueError(
                f"model {text!r}; accepted: FILE, or NAME=FILE with a NAME of a-z 0-9 - _ ."
            )
        return Source(name, path)


class Models:
    """Engines by name. Sources with the same name are versions of one model; sources and engines are listed
    newest first."""

    def __init__(self, sources: Sequence[Source], limits: Limits, dtype: str, threads: int) -> None:
        self.sources, self.limits, self.dtype, self.threads = sources, limits, dtype, threads
        self.engines: dict[str, list[Engine]] = {source.name: [] for source in sources}
        self.closed: dict[Weights, str] = {}  # the file of a closed version, and why it was closed
        self.reloading = asyncio.Lock()
        models = [self._load(source) for source in sources]
        for source, model in reversed([*zip(sources, models, strict=True)]):
            self.engines[source.name].insert(0, Engine(source.name, model, limits))
        self.first = sources[0].name

    def _load(self, source: Source) -> Model:
        """What is damaged or missing is refused here, not by a request."""
        model = Model.load(source.path, dtype=self.dtype, threads=self.threads)
        _ = model.labels, model.targets, model.columns
        if model.tokenizer == "sentencepiece":
            try:
                model.encode("")
            except ModuleNotFoundError as error:
                raise ValueError(f"model {source.name}: {error}") from error
        return model

    def newest(self, name: str | None) -> Engine:
        engines = self.engines.get(name or self.first)
        if engines is None:
            raise Problem(404, f"no model {name!r:.80}; accepted: {', '.join(self.engines)}")
        return engines[0]

    def version(self, name: str | None, version: str | None) -> Engine:
        """The version with this checksum; the newest if none is named."""
        newest = self.newest(name)
        if not version:
            return newest
        known = {engine.model.checksum: engine for engine in self.engines[newest.name]}
        if version not in known:
            accepted = ", ".join(known)
            raise Problem(
                404, f"no version {version!r:.80} of model {newest.name}; accepted: {accepted}"
            )
        return known[version]

    def of(self, name: str, fingerprint: str) -> Engine | None:
        """The version that a state belongs to."""
        engines = (e for e in self.engines.get(name, ()) if e.model.fingerprint == fingerprint)
        return next(engines, None)

    def that_reads(self, blob: bytes) -> Engine | None:
        """The version whose state this is, of any model."""
        for engine in self.all():
            with suppress(Problem):
                engine.check(blob)
                return engine
        return None

    def all(self) -> list[Engine]:
        return [engine for engines in self.engines.values() for engine in engines]

    async def reload(self, used: Callable[[], Awaitable[set[Weights]]] = none_used) -> list[str]:
        """Loads the files that have changed and returns the names of their models; existing sessions keep their
        old weights: `used` returns those that sessions need. If a file or the store cannot be read, nothing
        changes."""
        async with self.reloading:
            return await self._reload(used)

    async def _reload(self, used: Callable[[], Awaitable[set[Weights]]]) -> list[str]:
        changed: dict[str, Model] = {}
        for name, engines in self.engines.items():
            source = next(one for one in self.sources if one.name == name)
            model = await asyncio.to_thread(self._load, source)
            if model.checksum != engines[0].model.checksum:
                changed[name] = model
        needed = await used() if changed else set()
        for name, model in changed.items():
            self.engines[name].insert(0, Engine(name, model, self.limits))
        for engine, reason in self._too_many(needed).items():
            self.engines[engine.name].remove(engine)
            version, file = engine.model.checksum, Path(engine.model.path).name
            self.closed[_weights(engine)] = f"version {version} of {file}, {reason}"
            await engine.close(drain=True)
        for weights in [*self.closed][:-MOST_CLOSED]:
            del self.closed[weights]
        return [*changed]

    def _too_many(self, needed: set[Weights]) -> dict[Engine, str]:
        """Older versions that nobody needs, and those that do not fit into --max-weights; with the reason."""
        gone: dict[Engine, str] = {}
        older: list[Engine] = []
        for engines in self.engines.values():
            for age, engine in enumerate(engines[1:], 1):
                if age < SPARE or _weights(engine) in needed:
                    older.append(engine)
                else:
                    gone[engine] = "which no session used when newer ones were loaded"
        older.sort(key=lambda engine: (_weights(engine) in needed, engine.loaded))
        limit = f"{self.limits.flag('weights')} {self.limits.weights}"
        while sum(engine.model.weight_bytes for engine in older) > self.limits.weights:
            gone[older.pop(0)] = f"which made room for newer ones ({limit})"
        return gone

    def missing(self, name: str, fingerprint: str) -> str:
        """Why there is no version for a state."""
        weights = f"the session's state is from other weights of model {name}"
        if (closed := self.closed.get((name, fingerprint))) is None:
            return f"{weights} ({fingerprint}); accepted: a server that has them, or --replay"
        return f"{weights}, {closed}; accepted: a server that also has that file as {name}=FILE, or --replay"

    async def close(self) -> None:
        for engine in self.all():
            await engine.close(drain=False)  # the server has already waited for running requests


def _weights(engine: Engine) -> Weights:
    return engine.name, engine.model.fingerprint
