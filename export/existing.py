"""`verify_file`: checks an existing file.

Without a model: is every byte as written, and does the file run? With the model that it was made from: the full
verification, as at the end of an export.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .common.exported import Exported, open_exported
from .common.formats import get_format
from .entry import as_source
from .verify.alone import check_alone
from .verify.data import as_data
from .verify.quality import LIMIT
from .verify.report import Check, Report, Watch
from .verify.tensors import check_stored
from .verify.verify import STEPS, verify


def verify_file(
    path: str | Path,
    model: Any = None,
    *,
    steps: int = STEPS,
    text: Any = None,
    quality_limit: float = LIMIT,
    watch: Watch | None = None,
) -> Report:
    """Check a .tsm, ONNX, TorchScript or .pt2 file, or a Triton repository; `report.passed` has the result.

    path: the file. model: a model in memory, an opened checkpoint (open_trained), or the path of one; None
    checks the file alone. steps, text, quality_limit, watch: as for `export`. A damaged file is not opened.
    """
    models = open_exported(path)
    report = Report(Path(path), "triton" if models[0].triton else models[0].kind, "float32")
    for one in models:
        report.add(_integrity(one), watch)
    if not report.passed:
        return report
    for one in models:
        report.add(_stated(one), watch)
    report.dtype = models[0].options().dtype
    if model is None:
        for one in models:
            for runner in one.runners():
                report.add(check_alone(runner, one.facts), watch)
        return report
    source, made = as_source(model), get_format(report.format)
    pairs = made.stored(source, Path(path), models[0].options())
    report.add(check_stored(Path(path).name, pairs, report.dtype), watch)
    verify(
        source.model,
        [runner for one in models for runner in one.runners()],
        report.dtype,
        steps=steps,
        data=as_data(text),
        limit=quality_limit,
        classes=source.classes,
        report=report,
        watch=watch,
    )
    return report


def _integrity(one: Exported) -> Check:
    try:
        return Check(one.name, "every byte", True, {}, one.check())
    except (ValueError, OSError) as error:
        return Check(one.name, "every byte", False, {}, str(error))


def _stated(one: Exported) -> Check:
    proof = one.proof
    if proof is None:
        return Check(
            one.name, "proof", False, {}, "the file carries none; export it with tsm-export"
        )
    return Check(one.name, "proof", proof.get("passed") is True, {}, _accepted(proof))


def _accepted(proof: dict[str, Any]) -> str:
    """The proof that a file carries, in words."""
    words = f"{proof.get('checks')} checks passed in {proof.get('dtype')}, tsm {proof.get('tsm_version')}"
    by = proof.get("criterion")
    if not isinstance(by, dict):
        return words
    found, limit = by.get("found"), by.get("limit")
    if not all(isinstance(n, int | float) and abs(n) < 1e300 for n in (found, limit)):
        return words
    return f"{words}; {by.get('name')} {found:.1e} away on {by.get('on')}, limit {limit:g}"
