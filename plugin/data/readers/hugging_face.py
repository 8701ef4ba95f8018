"""Tables from a folder that Hugging Face `datasets` saved to disk. Only this reader needs the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..meta import by_split
from .table import Record, Table, record_of

SPLIT_OF = {
    "train": "train",
    "validation": "valid",
    "valid": "valid",
    "dev": "valid",
    "test": "test",
}


@dataclass(frozen=True)
class DatasetTable:
    """One split. Rows are counted from 1. A class label is given by its name."""

    name: str
    rows: Any

    def records(self) -> Iterator[Record]:
        """Every row in order."""
        named = {
            column: kind.int2str
            for column, kind in self.rows.features.items()
            if hasattr(kind, "int2str")
        }
        for number, row in enumerate(self.rows, 1):
            yield record_of(number, {c: _named(v, named.get(c)) for c, v in row.items()})


def _named(value: Any, name_of: Any) -> Any:
    if name_of is not None and isinstance(value, int):
        return None if value < 0 else name_of(value)  # -1 is "no label"
    return value


def open_datasets(folder: Path) -> dict[str, Table]:
    """split -> table. A folder with a single data set becomes train."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"--hf-dataset {folder} does not exist; accepted: a folder of Dataset.save_to_disk"
        )
    try:
        import datasets
    except ImportError as error:
        raise ValueError(
            "--hf-dataset needs the package datasets, which is not installed: pip install datasets "
            "(or save the data as CSV or JSON lines: Dataset.to_csv, to_json)"
        ) from error
    found = datasets.load_from_disk(str(folder))
    if not isinstance(found, dict):
        return {"train": DatasetTable(folder.name, found)}
    tables: dict[str, Table] = {}
    for name, rows in found.items():
        split = SPLIT_OF.get(name)
        if split is None or split in tables:
            raise ValueError(
                f"--hf-dataset {folder} has the splits {', '.join(found)}; accepted: "
                "train, validation (or valid, dev), test"
            )
        tables[split] = DatasetTable(f"{folder.name}/{name}", rows)
    return by_split(tables)
