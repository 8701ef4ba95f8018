"""Tasks: what `tsm-train --task NAME` can train on. The module of a task is imported on first use."""

from .base import TASKS, Batch, Sums, Task, register_task

__all__ = ["TASKS", "Batch", "Sums", "Task", "register_task"]

MODULES = {
    "adding": "adding",
    "classification": "classification",
    "copy": "copy_memory",
    "dyck2": "dyck2",
    "frequency": "frequency",
    "language_modeling": "language_modeling",
    "psmnist": "mnist",
    "scifar": "cifar",
    "series": "series",
    "series_steps": "series",
    "smnist": "mnist",
}
for _name, _module in MODULES.items():
    TASKS.promise(_name, f"{__name__}.{_module}")
