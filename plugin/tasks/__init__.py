"""Tasks: what `tsm-train --task NAME` can train on."""

from .base import TASKS, Batch, Sums, Task, register_task

__all__ = ["TASKS", "Batch", "Sums", "Task", "register_task"]

from . import (  # noqa: F401  they register themselves
    adding,
    cifar,
    classification,
    copy_memory,
    dyck2,
    frequency,
    language_modeling,
    mnist,
    series,
)
