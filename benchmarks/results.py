"""The measurements and their table: one line per case and dtype, times in microseconds per step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .case import Case
from .rivals import CPP, EAGER, FLOOR, LSTM_OP, NN_LSTM, ORT, SCAN, TSM, UNROLLED

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Result:
    """One rival in one case: microseconds per step of all B streams together."""

    case: Case
    rival: str
    dtype: str
    median_us: float | None  # None: wrong on this processor, so not timed
    best_us: float | None
    turns: int
    difference: float | None

    def plain(self) -> dict[str, Any]:
        values = asdict(self)
        return {**values.pop("case"), **values}


class Results:
    """Lookup by results.time(case, rival, dtype); None if the rival was not measured or gave a wrong result."""

    def __init__(self, found: Iterable[Result] = ()) -> None:
        self.all = list(found)
        self._times = {(r.case, r.rival, r.dtype): r.median_us for r in self.all}

    def time(self, case: Case, rival: str, dtype: str) -> float | None:
        return self._times.get((case, rival, dtype))

    def wrong(self, case: Case, rival: str, dtype: str) -> bool:
        key = (case, rival, dtype)
        return key in self._times and self._times[key] is None

    def best_ort(self, case: Case, dtype: str) -> float | None:
        """ONNX Runtime's best form; for bfloat16, which ONNX Runtime lacks, its best form in float32."""
        kind = "int8" if dtype == "int8" else "float32"
        times = [t for name in ORT if (t := self.time(case, name, kind)) is not None]
        return min(times, default=None)

    def cases(self) -> list[Case]:
        return list(dict.fromkeys(r.case for r in self.all))

    def dtypes(self, case: Case) -> list[str]:
        return list(dict.fromkeys(r.dtype for r in self.all if r.case == case and r.rival == TSM))


COLUMNS = {
    "tsm": TSM,
    "C++": CPP,
    "floor": FLOOR,
    "scan": SCAN,
    "unrolled": UNROLLED,
    "LSTM op": LSTM_OP,
    "eager": EAGER,
    "nn.LSTM": NN_LSTM,
}


WRONG = "wrong"
WRONG_NOTE = (
    f"{WRONG}: wrong on this processor, so not timed. ONNX Runtime's uint8 x int8 products saturate here, "
    "as on x86 without VNNI."
)


def table(results: Results) -> str:
    """One line per case and dtype. The last two columns are tsm's time over the floor, and its speed over ONNX
    Runtime's best form."""
    heads = ["cell", "B", "T", "H", "dtype", *COLUMNS, "/ floor", "ORT / tsm"]
    rows = []
    for case in results.cases():
        for dtype in results.dtypes(case):
            ours, floor = results.time(case, TSM, dtype), results.time(case, FLOOR, dtype)
            row = [case.cell, str(case.B), str(case.T), str(case.H), dtype]
            for name in COLUMNS.values():
                time = microseconds(results.time(case, name, dtype))
                row.append(WRONG if results.wrong(case, name, dtype) else time)
            row += [ratio(ours, floor), ratio(results.best_ort(case, dtype), ours)]
            rows.append(row)
    lines = aligned([heads, *rows], left=(0, 4))
    return f"{lines}\n{WRONG_NOTE}" if any(WRONG in row for row in rows) else lines


def microseconds(time: float | None) -> str:
    if time is None:
        return ""
    return f"{time:,.0f}" if time >= 100 else f"{time:.1f}"


def ratio(above: float | None, below: float | None) -> str:
    return "" if above is None or below is None else f"{above / below:.2f}"


def aligned(rows: Rows, left: Sequence[int] = (0,)) -> str:
    """Columns, a line under the heads."""
    sizes = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            word.ljust(size) if i in left else word.rjust(size)
            for i, (word, size) in enumerate(zip(row, sizes, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
