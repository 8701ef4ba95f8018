"""Evaluation of a model on a split of the task it was trained for: its criterion and its metrics."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ..criterions import CRITERIONS
from ..data.roles import NoTimeSteps, no_time_steps
from ..tasks import TASKS, Task
from ..tasks.base import Names
from ..tasks.classification import ClassificationTask
from ..tasks.text import TextTask
from ..train.evaluate import Totals, report
from ..train.objective import takes_dt
from ..trained import Trained
from .by_label import LabelSums
from .by_length import LengthSums
from .eval_text import Results, check_finite, check_vocab, perplexity, task_config
from .score import score_batches


def data_of_training(trained: Trained, advice: str) -> str:
    """The data folder used in training; "" if the data was generated. `advice` tells the user how to give
    another folder.

    A user-defined task may use anything as data, a file or a folder, and checks by itself whether its data
    exists.
    """
    task = trained.config["task"]
    data = str(task.get("data") or "")
    ours = TASKS.get(task["name"]).__module__.startswith(Task.__module__.rpartition(".")[0])
    if data and ours and not Path(data).exists():
        raise FileNotFoundError(
            f"{trained.path} was trained on {data}, which does not exist here; give the folder{advice}"
        )
    return data


def open_task(trained: Trained, data: str, batch_size: int | None) -> Task:
    """The task of the training run, with this folder and optionally another batch size."""
    changes = {"data": data} | ({} if batch_size is None else {"batch_size": batch_size})
    task = TASKS.get(trained.config["task"]["name"])(task_config(trained, **changes))
    if isinstance(task, TextTask):
        check_vocab(trained, task.vocab, data)
    outputs = trained.model.decoder.out_features
    names = trained.columns, trained.labels, trained.targets, trained.ranges
    task.arrange_for(Names(*names, outputs))
    told = no_time_steps(f"{data} has no dt", trained.path, trained.roles)
    if told and takes_dt(trained.model) and not task.takes_dt():
        warnings.warn(told, NoTimeSteps, stacklevel=2)
    return task


def evaluate_task(
    trained: Trained,
    task: Task,
    split: str,
    device: torch.device,
    by_length: bool = False,
    edges: Sequence[int] | None = None,
    watch: Callable[[int], None] = lambda rows: None,
) -> Results:
    """Loss in the criterion's unit (bits for cross entropy), metrics, precision and recall by label, accuracy
    by length."""
    criterion = CRITERIONS.get(trained.config["criterion"])()
    sums = Totals()
    lengths, rows = LengthSums(), 0
    labels = LabelSums(names) if (names := label_names(trained)) else None
    full = original_lengths(task, split) if by_length else None
    began = time.monotonic()
    for batch, logits in score_batches(trained.model, task, split, device):
        n = len(batch.x)
        loss, count = criterion(logits, batch)
        sums.add({"loss": (loss, count)})
        sums.add(task.metrics(logits, batch))
        if labels is not None:
            labels.add_batch(logits, batch)
        if by_length:
            own = batch.lengths
            if full is not None:
                own = full[rows : rows + n]
            if own is None:
                own = torch.full((n,), batch.x.shape[1])
            lengths.add_batch(task, logits, batch, own)
        rows += n
        watch(n)
    if not rows:
        raise ValueError(f"the {split} split is empty")
    seconds = time.monotonic() - began
    values = report(sums.numbers(), task, criterion)
    values["loss"] = check_finite(values["loss"], trained.path)
    found: Results = {"sequences": rows, "seconds": seconds, "criterion": criterion.name, **values}
    if criterion.unit == math.log(2):
        found["loss_unit"] = "bits"
        if task.family == "lm":
            found["perplexity"] = perplexity(values["loss"])
    if labels is not None:
        found["by_label"] = [dataclasses.asdict(row) for row in labels.table()]
    if by_length:
        limit = task.config.max_length if isinstance(task, ClassificationTask) else None
        found["by_length"] = [dataclasses.asdict(row) for row in lengths.table(edges, limit)]
    return found


def label_names(trained: Trained) -> list[str]:
    """Label names of a model with one label per sequence, or per step if the labels have names; else none."""
    if trained.config["criterion"] != "cross_entropy":
        return []
    count = trained.model.decoder.out_features
    numbers = [str(i) for i in range(count)] if trained.model.name == "classifier" else []
    return trained.labels or numbers


def original_lengths(task: Task, split: str) -> torch.Tensor | None:
    """Lengths of texts before they are truncated to max_length."""
    if not isinstance(task, ClassificationTask):
        return None
    return torch.from_numpy(task.folder.corpus(split).lengths())
