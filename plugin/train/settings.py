"""Settings of the training loop: the flags of `tsm-train` other than those of task, model, optimizer and
schedule."""

from __future__ import annotations

from dataclasses import dataclass

from ..common.rng import MAX_SEED
from ..config import setting

LOG_FORMATS = ("json", "simple", "tqdm", "none")
EPOCHS = 10
FROM_ZERO = (
    "max_epoch", "max_update", "patience", "clip_norm", "alpha", "beta", "seed", "log_interval",
    "log_seconds", "validate_interval_updates", "save_interval_updates", "hold_checkpoints_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class LoopConfig:
    """training"""

    max_epoch: int | None = setting(
        None,
        f"passes over the training data; 0: no limit; None: {EPOCHS}, or no limit with --max-update",
    )
    max_update: int = setting(0, "maximum number of updates; 0: no limit")
    patience: int = setting(0, "stop after this many validations without a new best; 0: never")
    clip_norm: float = setting(1.0, "maximum norm of the gradient; 0: no limit", "--clip")
    update_freq: int = setting(1, "batches whose gradients are combined in one update")
    alpha: float = setting(0.0, "AR: weight of mean(y^2), y = last layer's output after dropout")
    beta: float = setting(0.0, "TAR: weight of mean((y_t - y_{t-1})^2), y before dropout")
    reset_share: float = setting(
        0.0,
        "share of the rows that start a segment from a zero state instead of the carried one",
    )
    seed: int = setting(
        1,
        "seed of initial weights, data order and dropout (generated data: --data-seed)",
    )
    bf16: bool = setting(False, "matrix products in bfloat16 (weights and states stay float32)")
    cuda_graphs: bool = setting(
        True, "one GPU: record an update of each shape of batch and replay it"
    )
    device: str = setting("", "cpu, cuda or cuda:N (empty: a GPU if there is one)")
    cpu: bool = setting(False, "the same as --device cpu")
    validate_interval: int = setting(1, "epochs between validations")
    validate_interval_updates: int = setting(0, "updates between additional validations; 0: none")
    best_checkpoint_metric: str = setting(
        "loss", "metric that selects checkpoint_best.pt and drives --patience"
    )
    maximize_best_checkpoint_metric: bool = setting(False, "the largest value is the best")
    save_dir: str = setting(
        "", "folder of the run (empty: a folder in runs/ named after data and settings)"
    )
    restore_file: str = setting(
        "checkpoint_last.pt",
        "where to continue from: a file, or a name in --save-dir (default: its last checkpoint, if any; "
        "nothing with --no-save)",
    )
    reset_optimizer: bool = setting(
        False,
        "continue with a new optimizer, which may be a different one; updates count from 0 again",
    )
    reset_lr_scheduler: bool = setting(False, "continue with a new learning-rate schedule")
    reset_dataloader: bool = setting(False, "continue with the data from the beginning, at epoch 1")
    reset_meters: bool = setting(False, "continue without the best value, times and means so far")
    finetune_from_model: str = setting(
        "", "start a new training run from this checkpoint's weights"
    )
    save_interval: int = setting(1, "epochs between checkpointN.pt files")
    save_interval_updates: int = setting(0, "updates between saves of checkpoint_last.pt; 0: none")
    hold_checkpoints_seconds: float = setting(
        0.0,
        "minimum time before the first write to disk and between writes: earlier checkpoints stay in memory, "
        "where a crash loses them, until the next one after that time or the end (checkpointN.pt: only with "
        "--keep-last-epochs)",
        "--save-interval-seconds",
    )
    keep_last_epochs: int = setting(-1, "number of checkpointN.pt files to keep; -1: all")
    epoch_checkpoints: bool = setting(
        True, "write checkpointN.pt in addition to the best and the last checkpoint"
    )
    save: bool = setting(True, "write checkpoints")
    log_format: str = setting(
        "", "format of the reports (empty: tqdm on a terminal, else simple)", choices=LOG_FORMATS
    )
    log_interval: int = setting(
        0, "updates between reports; 0: after the first one, then every --log-seconds"
    )
    log_seconds: float = setting(10.0, "seconds between reports if --log-interval is 0")
    log_file: str = setting("", "also append the reports to this file")
    tensorboard_logdir: str = setting("", "write TensorBoard events to this folder")
    csv_file: str = setting("", "append the numbers of the reports to this CSV file")
    wandb_project: str = setting(
        "", "report to this project of Weights & Biases (pip install wandb)"
    )

    def __post_init__(self) -> None:
        if self.max_epoch is None:
            object.__setattr__(self, "max_epoch", 0 if self.max_update else EPOCHS)
        at_least = dict.fromkeys(("update_freq", "validate_interval", "save_interval"), 1)
        at_least |= dict.fromkeys(FROM_ZERO, 0) | {"keep_last_epochs": -1}
        for name, low in at_least.items():
            value = getattr(self, name)
            if not low <= value < float("inf"):
                raise ValueError(f"{name} is {value!r}; accepted: {low} or more")
        if not 0 <= self.reset_share <= 1:
            raise ValueError(f"reset_share is {self.reset_share!r}; accepted: 0 to 1")
        if self.seed > MAX_SEED:
            raise ValueError(f"seed is {self.seed}; accepted: 0 to 2^64 - 1")
        if self.log_format and self.log_format not in LOG_FORMATS:
            raise ValueError(
                f"log_format is {self.log_format!r}; accepted: {', '.join(LOG_FORMATS)}"
            )
        if not self.max_epoch and not self.max_update and not self.patience:
            raise ValueError(
                "--max-epoch, --max-update and --patience are all 0; accepted: one of them above 0"
            )
