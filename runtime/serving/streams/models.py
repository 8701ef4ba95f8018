"""The models that are served, by name, each with the versions that open sessions still need."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import Model
from ..transport.limits import Limits
from ..transport.problems import Problem
from .engine import Engine

MOST_VERSIONS = 4  # of one model in memory


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
        self.engines: dict[str, list[Engine]] = {}
        self.reloading = asyncio.Lock()
        for source in sources:
            engine = Engine(source.name, self._load(source), limits)
            self.engines.setdefault(source.name, []).append(engine)
        self.first = sources[0].name

    def _load(self, source: Source) -> Model:
        model = Model.load(source.path, dtype=self.dtype, threads=self.threads)
        _ = model.labels, model.columns  # damaged ones are refused here, not by a request
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
        found = (e for e in self.engines.get(name, ()) if e.model.fingerprint == fingerprint)
        return next(found, None)

    def all(self) -> list[Engine]:
        return [engine for engines in self.engines.values() for engine in engines]

    async def reload(self) -> list[str]:
        """Loads the files that have changed and returns the names of their models; existing sessions keep their
        old weights. If a file cannot be read, nothing changes."""
        async with self.reloading:
            return await self._reload()

    async def _reload(self) -> list[str]:
        changed: dict[str, Engine] = {}
        for name, engines in self.engines.items():
            source = next(one for one in self.sources if one.name == name)
            fresh = await asyncio.to_thread(self._load, source)
            if fresh.checksum != engines[0].model.checksum:
                changed[name] = Engine(name, fresh, self.limits)
        for name, engine in changed.items():
            self.engines[name].insert(0, engine)
        for name in changed:
            for old in self.engines[name][MOST_VERSIONS:]:
                self.engines[name].remove(old)
                await old.close(drain=True)
        return [*changed]

    async def close(self) -> None:
        for engine in self.all():
            await engine.close(drain=False)  # the server has already waited for running requests
