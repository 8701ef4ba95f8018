"""Latencies in buckets of equal relative width: bounded memory, percentiles accurate to 0.2%, and the
histograms of several runs can be added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

BITS = 10  # 2^9 buckets for each doubling; below 2^10 microseconds, one per microsecond
HALF = 1 << (BITS - 1)
LONGEST = (1 << 36) - 1  # microseconds (19 hours); longer latencies are recorded as this
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Histogram:
    def __init__(self, counts: Mapping[str, int] | None = None, longest: int = 0) -> None:
        self.counts = [0] * (_bucket(LONGEST) + 1)
        for bucket, count in (counts or {}).items():
            self.counts[int(bucket)] = count
        self.longest = longest  # microseconds

    def record(self, seconds: float) -> None:
        value = min(max(int(seconds * 1e6), 0), LONGEST)
        self.counts[_bucket(value)] += 1
        if value > self.longest:
            self.longest = value

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the records lies; nan if there are no records."""
        total = self.total
        if not total:
            return math.nan
        rank = max(1, math.ceil(share * total))
        for bucket, below in enumerate(itertools.accumulate(self.counts)):
            if below >= rank:
                return min(_last(bucket), self.longest) / 1e3
        raise AssertionError("the counts have changed meanwhile")

    def percentiles(self) -> dict[str, float]:
        """Milliseconds: p50, p90, p99, p99.9, max."""
        found = {name: self.percentile(share) for name, share in SHARES.items()}
        return {**found, "max": self.longest / 1e3}

    def __add__(self, other: Histogram) -> Histogram:
        found = Histogram(longest=max(self.longest, other.longest))
        found.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        return found

    def plain(self) -> dict[str, object]:
        """A dict for JSON; Histogram(**plain) restores it."""
        counts = {str(bucket): count for bucket, count in enumerate(self.counts) if count}
        return {"counts": counts, "longest": self.longest}


def _bucket(value: int) -> int:
    shift = max(0, value.bit_length() - BITS)
    return shift * HALF + (value >> shift)


def _last(bucket: int) -> int:
    """The greatest value of a bucket."""
    shift = max(0, bucket // HALF - 1)
    return ((bucket - shift * HALF + 1) << shift) - 1
