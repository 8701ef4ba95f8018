"""The requirements of analyses on a model and its data, each with the reason to report if it is not met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tasks import TASKS
from ..tasks.copy_memory import CopyTask
from ..tasks.dyck2 import Dyck2Task
from ..tasks.language_modeling import LanguageModelingTask
from .findings.base import Need

if TYPE_CHECKING:
    from .probes.subject import Subject


def _no_forget_factor(subject: Subject) -> str | None:
    if subject.cell.elementwise:
        return None
    return (
        "it is not element-wise: its units share one memory and have no forget gates of their own"
    )


def _no_forget_bias(subject: Subject) -> str | None:
    from .probes.retention import retention

    if why := _no_forget_factor(subject):
        return why
    reads = retention(subject.cell).program.inputs()
    states = sorted(name[2:] for name in reads if name.startswith("s."))
    if not states:
        return None
    return f"its forget factor depends on the state {', '.join(states)}, not on biases alone"


def _no_age(subject: Subject) -> str | None:
    if "age" in subject.cell.states:
        return None
    return "it has no reference time: none of its states is an age (power-law cells have one)"


def _no_exponent(subject: Subject) -> str | None:
    if "p" in subject.cell.vectors:
        return None
    return "it has no exponent p (power-law cells have one)"


def _is(subject: Subject, kind: type) -> bool:
    return issubclass(TASKS.get(subject.task_name), kind)


def _no_text(subject: Subject) -> str | None:
    if subject.maybe_trained is None:
        return None if subject.data_folder else "no text was given; give a checkpoint or --data DIR"
    return _no_language_model(subject)


def _no_language_model(subject: Subject) -> str | None:
    if _is(subject, LanguageModelingTask):
        return None
    return f"it is not a language model: it was trained on {subject.task_name}"


def _not_copy(subject: Subject) -> str | None:
    if _is(subject, CopyTask):
        return None
    return f"it was trained on {subject.task_name}, and only the copy task has a signal to wait for"


def _not_dyck2(subject: Subject) -> str | None:
    if _is(subject, Dyck2Task):
        return None
    return f"it was trained on {subject.task_name}, and only the dyck2 task has brackets to match"


def _no_accuracy(subject: Subject) -> str | None:
    if _is(subject, LanguageModelingTask):
        return "it is a language model, which has no sequences that could be right or wrong"
    import torch

    batch = next(subject.batches())
    with torch.no_grad():
        logits, _ = subject.model(batch.x, batch.lengths, None, batch.dt)
    if "accuracy" in subject.task.metrics(logits, batch):
        return None
    return f"its task, {subject.task_name}, has no accuracy"


def _one_length(subject: Subject) -> str | None:
    if _is(subject, LanguageModelingTask) or subject.sample.lengths is not None:
        return None
    return f"all sequences of its task, {subject.task_name}, are {subject.sample.x.shape[1]} long"


def _no_run(subject: Subject) -> str | None:
    if len(subject.run) > 1:
        return None
    return (
        f"it needs two or more checkpoints of one training run, and {len(subject.run)} were given; "
        "give --run DIR (tsm-train writes one per epoch, unless --no-epoch-checkpoints is given)"
    )


FORGET_FACTOR = Need("an element-wise cell", _no_forget_factor)
FORGET_BIAS = Need("a forget gate that its biases alone can set", _no_forget_bias)
AGE = Need("a cell with an age (power law)", _no_age)
EXPONENT = Need("a cell with an exponent p (power law)", _no_exponent)
TEXT = Need("text", _no_text)
LANGUAGE_MODEL = Need("a language model", _no_language_model)
COPY = Need("the copy task", _not_copy)
DYCK2 = Need("the Dyck-2 task", _not_dyck2)
ACCURACY = Need("a task with an accuracy", _no_accuracy)
LENGTHS = Need("sequences of different lengths", _one_length)
RUN = Need("checkpoints of a training run", _no_run)
