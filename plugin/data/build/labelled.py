"""A user's labelled texts, as pieces with labels for build_text.

A first pass over the tables checks every row and finds the labels. It keeps a few bytes per row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import compress

from ...common.lazy import np
from ..datasets.common import Pieces, TextSource
from ..labels import MAX_LABELS
from ..meta import SPLITS
from ..readers.table import Table
from ..readers.table import field as value_of
from ..tokenizers import Tokenizer
from .options import Options
from .pipeline import open_bar
from .shares import Shares, deal

NUMBERS = "; a table of numbers needs --sequence-column"
UNBALANCED = 3  # a label this many times as frequent as the rarest is reported


@dataclass(frozen=True)
class LabelledTexts:
    """A table with a column of texts and one of labels. Rows without a text are skipped."""

    table: Table
    text: str
    label: str
    tokenizer: Tokenizer

    def rows(self) -> Iterator[tuple[int, str, str]]:
        """Yields line number, text on one line ("" if it is empty), and label."""
        for record in self.table.records():
            if not record.values:
                yield record.line, "", ""
                continue
            text = value_of(self.table, record, self.text, "--text-column", NUMBERS)
            label = value_of(self.table, record, self.label, "--label-column").strip()
            if self.tokenizer.is_empty(text):
                yield record.line, "", label
                continue
            if not label:
                raise ValueError(
                    f"{self.table.name}:{record.line}: the label ({self.label!r}) is missing; "
                    "accepted: one for every text"
                )
            yield record.line, one_line(text), label

    def texts(self, keep: np.ndarray | None = None) -> Iterator[str]:
        """The texts, or only those marked in `keep`."""
        found = (text for _, text, _ in self.rows() if text)
        return found if keep is None else compress(found, keep)


def one_line(text: str) -> str:
    """Replaces line breaks inside a text with spaces."""
    return " ".join(text.splitlines())


@dataclass
class Scan:
    """The result of the first pass over a table. labels: one index into `names` per text."""

    names: dict[str, int] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)  # first line with each name
    labels: array[int] = field(default_factory=lambda: array("i"))
    empty: list[int] = field(default_factory=list)  # the first few lines without a text
    empties: int = 0

    def add(self, line: int, text: str, label: str) -> None:
        if not text:
            self.empties += 1
            self.empty += [line] if len(self.empty) < 3 else []
            return
        number = self.names.setdefault(label, len(self.names))
        if number == len(self.first):
            self.first.append(line)
        self.labels.append(number)


def labelled_source(
    files: Mapping[str, LabelledTexts], options: Options, shares: Shares | None
) -> TextSource:
    """The given splits, or one table split by `shares`."""
    scans = {split: _scan(texts, split, options) for split, texts in files.items()}
    first, train = next(iter(files.items()))  # train, or a split that a model is evaluated on
    notes = [
        f"{files[split].table.name}: {scan.empties:,} rows without a text were skipped "
        f"(line {', '.join(map(str, scan.empty))}{', ...' * (scan.empties > len(scan.empty))})"
        for split, scan in scans.items()
        if scan.empties
    ]
    if first == "train":
        classes = _classes(scans[first], train)
    else:
        classes = in_order({name for scan in scans.values() for name in scan.names})
    ids = {split: _ids(scan, classes, files[split]) for split, scan in scans.items()}
    pieces: dict[str, Pieces]
    if shares is None:
        rule = "the user's files"
        pieces = {split: texts.texts for split, texts in files.items()}
    else:
        rule = f"shares {', '.join(f'{s:g}' for s in shares)} of one file, by label and seed {options.seed}"
        dealt, every = deal(ids["train"], shares, options.seed), ids["train"]
        parts = {split: dealt == number for number, split in enumerate(SPLITS[: len(shares)])}
        for split, part in parts.items():
            if not part.any():
                raise ValueError(
                    f"--split: {split} gets none of the {len(every):,} rows, which are split label by label; "
                    f"accepted: more rows, or a larger share for {split}"
                )
        ids = {split: every[part] for split, part in parts.items()}
        pieces = {split: partial(train.texts, part) for split, part in parts.items()}
    if first == "train":
        notes += balance_note(np.bincount(ids[first]), classes)
    return TextSource(
        train.tokenizer,
        pieces,
        rule,
        None,
        {split: texts.table.name for split, texts in files.items()},
        notes=notes,
        classes=classes,
        labels=ids,
    )


def _scan(texts: LabelledTexts, split: str, options: Options) -> Scan:
    scan = Scan()
    bar = open_bar(options.progress, f"reading {split}")
    try:
        for line, text, label in texts.rows():
            scan.add(line, text, label)
            bar.update(len(text))
            if len(scan.names) > MAX_LABELS:
                raise ValueError(
                    f"{texts.table.name}:{line}: more than {MAX_LABELS:,} labels; accepted: fewer "
                    f"(is {texts.label!r} the column of labels?)"
                )
    finally:
        bar.close()
    if not scan.labels:
        raise ValueError(f"{texts.table.name} has no text; accepted: at least one row with a text")
    return scan


def _classes(train: Scan, texts: LabelledTexts) -> list[str]:
    """The labels of train, in order."""
    if len(train.names) < 2:
        raise ValueError(
            f"{texts.table.name}: every row has the label {next(iter(train.names))!r} "
            f"({texts.label!r}); accepted: two labels or more"
        )
    return in_order(train.names)


def in_order(names: Iterable[str]) -> list[str]:
    """Sorts integers by value, other names as text."""
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


def _ids(scan: Scan, classes: list[str], texts: LabelledTexts) -> np.ndarray:
    known = {name: number for number, name in enumerate(classes)}
    for name, line in zip(scan.names, scan.first, strict=True):
        if name not in known:
            raise ValueError(
                f"{texts.table.name}:{line}: the label {name!r} is not in the training split; "
                f"accepted: {', '.join(map(repr, classes[:10]))}{', ...' * (len(classes) > 10)}"
            )
    table = np.array([known[name] for name in scan.names], dtype=np.int32)
    return table[np.frombuffer(scan.labels, dtype=np.intc)]


def balance_note(counts: np.ndarray, classes: list[str]) -> list[str]:
    """A note if one label is much more frequent than another in train."""
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < UNBALANCED * counts[least]:
        return []
    share = counts[most] / counts.sum()
    return [
        f"unbalanced labels in train: {classes[most]!r} {counts[most]:,}, {classes[least]!r} "
        f"{counts[least]:,}; always predicting {classes[most]!r} would be right for {share:.1%} of the rows"
    ]
