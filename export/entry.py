"""`export`: from a model or a checkpoint to a file that is verified to be the same model.

The file is made in a hidden folder beside its final place, verified there, and renamed. After any failure the
final file is unchanged; the report of a failed verification is still written.
"""

from __future__ import annotations

import copy
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plugin.common.atomic import NotDurable
from ..plugin.common.checks import check_integer
from ..plugin.common.inputs import keep_inputs
from .common.exported import open_exported
from .common.formats import DTYPES, Options, Progress, Source, get_format
from .verify.data import as_data
from .verify.quality import LIMIT
from .verify.report import Report, Watch, plot_drift
from .verify.tensors import check_stored
from .verify.verify import STEPS, VerifyError, verify

if TYPE_CHECKING:
    from ..plugin.models import SequenceModel
    from ..plugin.trained import Trained

REPORTS = (".report.json", ".drift.png")
BESIDE = (*REPORTS, ".data")
"""Suffixes of the files beside an exported one."""
DATA = re.compile(r"\.[0-9a-f]{16}\.data")
"""Suffix of the file with a large model's weights, which contains their hash."""


def export(
    model: SequenceModel | Trained | Source | str | Path,
    path: str | Path,
    format: str = "tsm",
    recurrence: str | None = None,
    chunk_size: int | None = None,
    dtype: str = "float32",
    *,
    inputs: Sequence[str] | None = None,
    steps: int = STEPS,
    text: Any = None,
    quality_limit: float = LIMIT,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Report:
    """Write `path` and verify it; raises VerifyError, and leaves no file, if it is not the same model.

    model: a model in memory, an opened checkpoint (open_trained), or the path of one. format: tsm, onnx,
    torchscript, pt2, triton. recurrence: scan, loop, unrolled (with chunk_size) or lstm_op, if the format
    supports it; None: the format's default. dtype: of the matrices. inputs: which of "lengths" and "dt" an ONNX
    graph has; None: lengths, and dt if the cell takes it; each must then be given with every chunk. steps:
    length of the long stream of the verification. text: tokens [n] of a real text, or another `Data`, on which
    loss and accuracy are compared. quality_limit: below float32, the largest accepted relative change of the
    perplexity, or divergence of the outputs in nats; on the text or, without one, on a sample. progress: called
    with a few words about each step; watch: called with every check. Also writes FILE.report.json and
    FILE.drift.png.
    """
    made = get_format(format)
    target = Path(path)
    if dtype not in DTYPES:
        raise ValueError(f"dtype = {dtype!r}; accepted: {', '.join(DTYPES)}")
    if not quality_limit > 0:
        raise ValueError(f"quality_limit = {quality_limit!r}; accepted: a number above 0")
    if inputs is not None and (format != "onnx" or isinstance(inputs, str)):
        raise ValueError(
            f"inputs = {inputs!r} with format {format!r}; accepted: a list of names with format 'onnx', or None"
        )
    check_integer("steps", steps, 0)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"folder {target.parent} does not exist")
    form = recurrence or (made.FORMS[0] if made.FORMS else None)
    options = Options(form, chunk_size, dtype, None if inputs is None else tuple(inputs))
    say = progress or (lambda what: None)
    read = model if isinstance(model, (str, Path)) else getattr(model, "path", None)
    keep_inputs("path =", written(target), [read])
    source = as_source(model)
    made.check_place(source, target)
    data = as_data(text)
    with _staged(target) as staged:
        made.write(source, staged, options, say)
        report = Report(target, format, dtype, options.recurrence or "", chunk_size)
        report.facts["arch"] = source.model.config.get("arch")
        say("verifying")
        report.add(check_stored(target.name, made.stored(source, staged, options), dtype), watch)
        runners = list(made.runners(staged, options))
        verify(
            source.model,
            runners,
            dtype,
            steps=steps,
            data=data,
            limit=quality_limit,
            classes=source.classes,
            report=report,
            watch=watch,
        )
        del runners  # runners may hold the file open
        if report.passed:
            made.seal(staged, report.record())
            for one in open_exported(staged):
                one.check()
        report.facts["bytes"] = _size(staged.parent)
        if not report.passed:
            write_report(report)
            raise VerifyError(report)
        for end in REPORTS:  # of an earlier export: a report is there only if its file is
            target.with_name(target.name + end).unlink(missing_ok=True)
    try:
        write_report(report)
    except OSError as error:
        why = f"{error.strerror}; the export is in place, but not its report"
        raise OSError(error.errno, why, error.filename) from error
    return report


def as_source(model: Any) -> Source:
    """The model in eval mode, on the CPU, in float32 (a copy if it is not), with its assets."""
    from ..plugin.models import SequenceModel
    from ..plugin.trained import Trained, open_trained

    if isinstance(model, (str, Path)):
        model = open_trained(model)
    if isinstance(model, Trained):
        model = Source(model.model, model.config, model.assets)
    elif isinstance(model, SequenceModel):
        model = Source(model)
    if not isinstance(model, Source):
        raise ValueError(
            f"model is a {type(model).__name__}; accepted: a model of tsm, a trained one, or the path "
            "of a checkpoint"
        )
    return Source(_plain_model(model.model), model.config, model.assets)


def _plain_model(model: SequenceModel) -> SequenceModel:
    import torch

    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} has a number that is not finite; it cannot be exported")
    strange = [
        v for v in tensors.values()
        if v.device.type != "cpu" or (v.is_floating_point() and v.dtype != torch.float32)
    ]  # fmt: skip
    if strange or model.training:
        model = copy.deepcopy(model).to("cpu").float().eval()
    return model


def written(target: Path) -> list[Path]:
    """Every file that an export may write or remove."""
    return [target, *(target.with_name(target.name + end) for end in BESIDE), *_data_beside(target)]


def _data_beside(target: Path) -> list[Path]:
    """Files with the weights of large models beside the target."""
    beside = target.parent.glob(f"{glob.escape(target.name)}.*.data")
    return [path for path in beside if DATA.fullmatch(path.name[len(target.name) :])]


def write_report(report: Report) -> None:
    """Writes FILE.report.json and, if there was a long stream, FILE.drift.png."""
    from ..plugin.common.atomic import write_bytes

    folder, name = report.path.parent, report.path.name
    write_bytes(folder / f"{name}.report.json", report.json().encode())
    if not report.drift:
        return
    with tempfile.TemporaryDirectory() as scratch:
        picture = Path(scratch) / "drift.png"
        try:
            plot_drift(report, picture)
        except ModuleNotFoundError as error:  # the curve is in the JSON; a picture needs matplotlib
            if error.name is None or not error.name.startswith("matplotlib"):
                raise
            return
        write_bytes(folder / f"{name}.drift.png", picture.read_bytes())


class Incomplete(OSError):
    """A part of the export has its name, and could not be taken back."""


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """A path of the same name in a hidden folder; on success everything there moves to its final place."""
    from ..plugin.common.atomic import check_replaceable

    stage = None
    try:
        check_replaceable(target)
        stage = Path(
            tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".stage", dir=target.parent)
        )
        yield stage / target.name
        made = _move(stage, target)
    except (NotDurable, Incomplete):
        raise  # these say what is there
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(error.errno, f"{why}; nothing was written", str(target)) from error
    finally:
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)
    for left in set(_data_beside(target)) - made:  # used only by the old target
        left.unlink(missing_ok=True)


def _move(stage: Path, target: Path) -> set[Path]:
    """Sync every file and folder to the disk, then rename it; the target itself comes last. No folder is
    replaced. If a rename fails, the earlier ones are undone.

    Returns the new names.
    """
    from ..plugin.common.atomic import sync_folder

    for path in stage.rglob("*"):
        sync_folder(path)  # a file is synced in the same way
    made = sorted(stage.iterdir(), key=lambda path: path.name == target.name)
    if not made or made[-1].name != target.name:
        raise OSError(0, "the exporter made no such file", str(target))
    moved: list[tuple[Path, Path]] = []  # (new name, name in the stage), if the new name was free
    try:
        for new in made:
            place = target.parent / new.name
            if new is made[-1] and len(made) > 1:
                sync_folder(target.parent)  # the target never exists without the files it refers to
            if new.is_dir() and place.is_dir():  # new models are added to the existing ones
                for part in [*new.iterdir()]:
                    os.rename(part, place / part.name)
                    moved.append((place / part.name, part))
            else:
                free = not os.path.lexists(place)
                os.replace(new, place)
                moved += [(place, new)] * free
    except BaseException:
        if os.path.lexists(made[-1]):  # otherwise all is in place
            _take_back(moved)
        raise
    try:
        if target.is_dir():
            sync_folder(target)  # models may have been added to it
        sync_folder(target.parent)
    except OSError as error:
        why = f"{error.strerror}; the file is in place, but its name may not be on the disk yet"
        raise NotDurable(error.errno, why, str(target)) from error
    return {target.parent / new.name for new in made}


def _take_back(moved: Sequence[tuple[Path, Path]]) -> None:
    left: dict[str, OSError] = {}
    for place, back in moved:
        try:
            os.rename(place, back)
        except OSError as error:
            left[str(place)] = error
    if left:
        cause = next(iter(left.values()))
        why = f"{cause.strerror}; delete this: the export is incomplete"
        raise Incomplete(cause.errno, why, ", ".join(left)) from cause


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
