"""The table that tsm-preprocess prints at the end."""

from __future__ import annotations

from typing import Any

from ..meta import Meta

TEXT = ("split", "lines", "tokens", "types", "unk", "size")
SERIES = ("split", "sequences", "steps", "size")


def summary_table(meta: Meta) -> str:
    """One row per split: lines, tokens, types, share of <unk> and file sizes, or sequences and steps."""
    rows = [_row(split, numbers) for split, numbers in meta.splits.items()]
    if meta.series is not None:
        rows = [(*row[:3], row[-1]) for row in rows]
    rows.insert(0, TEXT if meta.series is None else SERIES)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        f"{row[0]:<{widths[0]}}  "
        + "  ".join(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def _row(split: str, n: dict[str, Any]) -> tuple[str, ...]:
    tokens = n.get("tokens")
    share = "-" if not tokens or "unk" not in n else f"{100 * n['unk'] / tokens:.2f}%"
    return (
        split,
        _number(n.get("lines")),
        _number(tokens),
        _number(n.get("types")),
        share,
        human_size(n["bytes"]),
    )


def _number(n: int | None) -> str:
    return "-" if n is None else f"{n:,}"


def human_size(n: float) -> str:
    """1536 -> 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"
