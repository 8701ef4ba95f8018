"""The training loop. `Trainer.train` is the outline; the other methods are its steps.

    epoch -> batches -> update -> (validate, save) -> end of epoch: validate, save

The next update depends only on `TrainState`, the weights, the optimizer, the schedule, the random generators
and the carried state. All of them are in every checkpoint, so a resumed run continues as if it had not been
stopped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ..criterions import Criterion, with_output_names
from ..tasks.base import Batch, Task
from .clipping import divide_gradients, norm_and_factor
from .copies import PendingCopy, to_host
from .distributed import State, World, stack_rows
from .evaluate import Values, evaluate, named_loss
from .graphs import UpdateGraphs, old_objects_at_rest
from .nt_asgd import AveragingOptimizer, evaluation_weights
from .objective import objective, place, restart, steps_in, takes_dt
from .progress import Clock, Progress
from .rng import get_rng_state
from .saver import Saver
from .schedules import Schedule
from .settings import LoopConfig
from .signals import StopRequest
from .state import Meter, TrainState, Trend


def updates_per_epoch(task: Task, config: LoopConfig, epoch: int = 1) -> int:
    """How many updates an epoch has; the last one may use fewer batches."""
    return math.ceil(task.batches_per_epoch(epoch) / config.update_freq)


def total_updates(task: Task, config: LoopConfig) -> int | None:
    """How many updates the whole training run has, if that is known."""
    limits = [config.max_update] if config.max_update else []
    if config.max_epoch:
        limits.append(config.max_epoch * updates_per_epoch(task, config))
    return min(limits) if limits else None


class NotFinite(ArithmeticError):
    """A loss, a gradient or a weight is NaN or infinite."""


FACTOR = 5  # its place among the numbers of a Reading
ABOVE_GUESSING, ABOVE_FIRST = 1.2, 10.0  # from here on a loss means that training has diverged


@dataclass(frozen=True)
class Reading:
    """The numbers of an update while they are copied to the host: loss, count, steps, stop request, norm, and
    the factor if the optimizer multiplies the gradients by it."""

    numbers: PendingCopy
    update: int
    epoch: int
    first: int
    last: int
    lr: float


class Trainer:
    """All parts of one training run, and its loop."""

    def __init__(
        self,
        task: Task,
        model: Any,
        criterion: Criterion,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        config: LoopConfig,
        settings: dict[str, Any],
        world: World,
        progress: Progress,
        graphs: bool = False,
    ) -> None:
        self.task, self.model, self.criterion = task, model, criterion
        self.optimizer, self.schedule = optimizer, schedule
        self.config, self.settings, self.world = config, settings, world
        self.progress = progress
        self.saver = Saver(config, world.first)
        self.state = TrainState()
        self.carried: State | None = None
        self.stop = StopRequest()
        progress.on_loss = self.stop.ask
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.takes_dt = takes_dt(model)
        self.step_multiplies = config.clip_norm > 0 and getattr(optimizer, "takes_factor", False)
        self.graphs = UpdateGraphs(self.compute, self.parameters, progress.note) if graphs else None
        self.trend = Trend()
        self._unread: deque[Reading] = deque()
        self._stop_agreed = False
        self.interrupted = False  # a signal stopped training before its end

    def train(self) -> str:
        """Runs to the end or to a stop request. Returns the reason for the end."""
        total = total_updates(self.task, self.config)
        s = self.state
        self.clock = Clock(total, s.update, s.seconds, s.interval_meter.steps)
        quiet = nullcontext() if self.graphs is None else old_objects_at_rest()
        with self.stop, quiet:
            self.check_metric()
            try:
                while not self.why_stop():
                    self.validate_between()  # makes up for a validation that a stop interrupted
                    for batches in self.rest_of_epoch():
                        self.update(batches)
                        self.validate_between()
                        self.save_between()
                        if self.why_stop():
                            break
                    else:
                        self.end_epoch()
                return self.finish()
            finally:
                self.saver.flush()

    def rest_of_epoch(self) -> Iterator[list[Batch]]:
        """The batches of each remaining update."""
        c, s = self.config, self.state
        total = updates_per_epoch(self.task, c, s.epoch)
        self.progress.begin_epoch(s.epoch, math.ceil(s.index / c.update_freq), total)
        batches = self.task.train_batches(s.epoch, s.index)
        while group := list(islice(batches, c.update_freq)):
            yield group

    def update(self, batches: list[Batch]) -> None:
        """One step of the optimizer, from one or more batches."""
        self.model.train()
        if self.graphs is not None and len(batches) == 1:
            batch = place(batches[0], self.world.device, self.takes_dt)
            numbers, self.carried = self.graphs(batch, self.carried)
        else:
            numbers = self.gradient(batches)

        s = self.state
        lr_factor = self.schedule.factor(s.update + 1)
        lr_factor *= sum(batch.lr_scale for batch in batches) / len(batches)
        last = s.index + len(batches)
        lr = self.rates[0] * lr_factor
        self._unread.append(Reading(to_host(numbers), s.update + 1, s.epoch, s.index + 1, last, lr))
        self.read(all_but=1 if self.world.device.type == "cuda" else 0)

        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * lr_factor
        if self.step_multiplies:
            self.optimizer.step(factor=numbers[FACTOR])  # type: ignore[call-overload]
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()
        s.update, s.index = s.update + 1, last

    def gradient(self, batches: list[Batch]) -> Tensor:
        """Computes the clipped mean gradient of the parameters over the batches; returns the numbers of a
        `Reading`. If the step multiplies, the gradients are only sums, and the last number is their factor."""
        numbers = torch.zeros(4, dtype=torch.float64, device=self.world.device)
        for batch in batches:
            if len(batch.x):  # a rank may have no rows in a small batch
                batch = place(batch, self.world.device, self.takes_dt)
                loss, count = self.backward(batch)
                numbers[0] += loss
                numbers[1] += count
            numbers[2] += steps_in(batch)
        if self.world.size > 1:
            numbers[3] = float(self.stop.requested is not None)
        self.world.add_up(numbers)
        self.world.share_gradients(self.parameters)
        total = numbers[1]  # if 0, there were no targets, and the gradients are 0
        limit = self.config.clip_norm or math.inf
        if self.step_multiplies:
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            return torch.cat([numbers, norm_and_factor(gradients, total, limit)])
        norm = divide_gradients(self.parameters, total, limit)
        return torch.cat([numbers, norm.view(1)])

    def compute(self, batch: Batch, state: State | None) -> tuple[Tensor, State | None]:
        """Computes the gradient of one update that starts from `state`; returns (numbers, new state)."""
        self.carried = state
        return self.gradient([batch]), self.carried

    def backward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Adds the gradients of a batch; returns (sum of losses, count)."""
        c = self.config
        start = restart(self.carried, c.reset_share)
        found = objective(self.model, self.criterion, batch, start, c.alpha, c.beta, c.bf16)
        found.backward()
        self.carried = found.state if self.task.stateful else None
        return found.loss.detach(), found.count

    def read(self, all_but: int = 0) -> None:
        """Reads the numbers of past updates, stops if one is not finite, and reports progress. On a GPU this is
        one update late: while the host waits for the numbers of the previous update, the device computes the
        current one."""
        while len(self._unread) > all_but:
            reading = self._unread.popleft()
            loss, count, steps, stop, norm = reading.numbers.values()[:5]
            if not math.isfinite(loss) or not math.isfinite(norm):
                raise self.not_finite(_broken(reading, loss, norm))
            self._stop_agreed = self._stop_agreed or stop > 0
            s = self.state
            s.epoch_meter.add(loss, count, steps)
            s.interval_meter.add(loss, count, steps)
            s.steps += steps
            if count:
                self.trend.add(reading.update, loss / count)
            self.progress.tick(self.loss_values(s.epoch_meter))
            if self.clock.due(reading.update, self.config.log_interval, self.config.log_seconds):
                self.report_train(reading, norm)

    @property
    def asked_to_stop(self) -> bool:
        """Whether a signal has arrived and all processes know about it."""
        return self._stop_agreed or (self.world.size == 1 and self.stop.requested is not None)

    def why_stop(self) -> str | None:
        """The reason to stop now, if there is one."""
        c, s = self.config, self.state
        if self.asked_to_stop:
            return f"{self.stop.requested or 'a signal'} asked to stop"
        if c.max_update and s.update >= c.max_update:
            return f"--max-update {c.max_update} is reached"
        if c.max_epoch and s.epoch > c.max_epoch:
            return f"--max-epoch {c.max_epoch} is reached"
        if c.patience and s.stale >= c.patience:
            return f"no new best in {s.stale} validations"
        return None

    def validate_between(self) -> None:
        """Validates and saves within an epoch, every --validate-interval-updates."""
        s, every = self.state, self.config.validate_interval_updates
        if not every or not s.update or s.update % every or s.validated == s.update:
            return
        best = self.validate()
        if best is not None:
            self.save(self.saver.names(best))

    def save_between(self) -> None:
        """Saves within an epoch, every --save-interval-updates."""
        every = self.config.save_interval_updates
        if every and self.state.update % every == 0:
            self.read()
            self.save(self.saver.names(best=False))

    def end_epoch(self) -> None:
        """Validates, reports, moves to the next epoch and saves."""
        c, s = self.config, self.state
        self.read()
        best = False
        due = s.epoch % c.validate_interval == 0 or s.epoch == c.max_epoch
        if due and s.validated != s.update:
            found = self.validate()
            if found is None:  # asked to stop: the epoch will end after resuming
                return
            best = found
        self.progress.event(
            "epoch", {"epoch": s.epoch, "update": s.update, **self.loss_values(s.epoch_meter)}
        )
        finished = s.epoch
        s.next_epoch()
        self.carried = None
        self.save(self.saver.names(best, finished))

    def validate(self, steers: bool = True) -> bool | None:
        """Returns whether it is a new best, or None if interrupted. steers: the loss is passed to the schedule
        and the optimizer."""
        self.read()
        s, c = self.state, self.config
        values = self.evaluate("valid")
        if values is None:
            return None
        if not math.isfinite(values["loss"]):  # caused by the last update
            raise self.not_finite(f"validation loss is {values['loss']} {self.where()}")
        best = s.judge(self.metric(values), c.maximize_best_checkpoint_metric, values)
        shown: dict[str, Any] = {"epoch": s.epoch, "update": s.update, **values}
        self.progress.event("valid", {**shown, f"best_{c.best_checkpoint_metric}": s.best})
        if steers:
            s.validated = s.update
            s.stale = 0 if best else s.stale + 1
            self.schedule.on_validation(values["loss"])
            optimizer = self.optimizer
            if isinstance(optimizer, AveragingOptimizer) and optimizer.on_validation(
                values["loss"]
            ):
                self.progress.note(f"update {s.update}: NT-ASGD starts averaging")
        return best

    def metric(self, values: Values) -> float:
        """The value that selects the best checkpoint."""
        name = self.config.best_checkpoint_metric
        if name not in values:
            raise ValueError(
                f"best_checkpoint_metric is {name!r}; accepted with this task: {', '.join(values)}"
            )
        return values[name]

    def check_metric(self) -> None:
        """Raises a ValueError before training if validations will not have that value."""
        if self.config.best_checkpoint_metric == "loss":
            return
        values = self.evaluate("valid", limit=1)
        if values is not None:
            self.metric(values)

    def evaluate(self, split: str, limit: int | None = None) -> Values | None:
        """Metrics of a split (or of its first batches) with the weights to evaluate."""
        with evaluation_weights(self.optimizer):
            return evaluate(
                self.model,
                self.task,
                self.criterion,
                split,
                self.world,
                self.config.bf16,
                give_up=lambda: self.world.size == 1 and self.stop.requested is not None,
                limit=limit,
            )

    def finish(self) -> str:
        """Saves if training stopped within an epoch. The last validation of a run that --max-update ends may
        write a best checkpoint, but has no other effect: a later run continues as if there had been no
        interruption."""
        self.read()
        self.interrupted = self.asked_to_stop  # a later signal has no effect
        why = self.why_stop() or ""
        s = self.state
        if s.index:
            done = self.interrupted or s.validated == s.update
            best = False if done else self.validate(steers=False)
            self.save(self.saver.names(bool(best)))
        s.seconds = self.clock.seconds()
        self.note_divergence()
        return why

    def note_divergence(self) -> None:
        """Says so if recent losses are far above that of guessing or, for numbers, above the first one."""
        before, limit, compared = self.trend.first, ABOVE_FIRST, "it had at the first update"
        if self.criterion.classes:
            before, limit = math.log(self.model.decoder.out_features), ABOVE_GUESSING
            compared = "guessing gives"
        now = self.trend.recent
        if before is not None and now is not None and now > limit * before:
            loss, expected = (f"{value / self.criterion.unit:,.4g}" for value in (now, before))
            self.progress.note(
                f"training has diverged: its loss is {loss}; {compared} {expected}. {self.advice()}"
            )

    def save(self, names: list[str]) -> None:
        """Writes the current state of training to the files `names`. All processes take part; the first one
        writes.

        Raises NotFinite and writes nothing if the weights are NaN or infinite.
        """
        self.check_weights()
        generators = self.world.gather(get_rng_state(self.world.device))
        carried = stack_rows(self.world.gather(_on_cpu(self.carried)))
        if not self.saver.writes:
            return
        self.state.seconds = self.clock.seconds()
        averaging = isinstance(self.optimizer, AveragingOptimizer) and self.optimizer.averaging
        trained = (
            {n: p.detach().clone() for n, p in self.model.named_parameters()} if averaging else None
        )
        with evaluation_weights(self.optimizer):
            checkpoint = {
                "model": self.model.state_dict(),
                "config": self.settings,
                "optimizer": self.optimizer.state_dict(),
                "train_state": {
                    **self.state.to_dict(),
                    "scheduler": self.schedule.state_dict(),
                    "generators": generators,
                    "carried": carried,
                    "trained_weights": trained,
                },
                "assets": {
                    name: torch.frombuffer(bytearray(data), dtype=torch.uint8)
                    for name, data in self.assets().items()
                },
            }
            self.saver.write(checkpoint, names)

    def assets(self) -> dict[str, bytes]:
        """The files of a checkpoint."""
        return with_output_names(self.task.assets(), self.criterion, self.model)

    def loss_values(self, meter: Meter) -> Values:
        loss = meter.mean / self.criterion.unit
        return {"loss": loss, **named_loss(loss, self.task, self.criterion)}

    def report_train(self, reading: Reading, norm: float) -> None:
        meter = self.state.interval_meter
        values: dict[str, Any] = {"epoch": reading.epoch, "update": reading.update}
        values |= self.loss_values(meter)
        values |= {"lr": reading.lr, "gnorm": norm}
        self.progress.event("train", values | self.clock.look(reading.update, meter.steps))
        self.state.interval_meter = Meter()

    def check_weights(self) -> None:
        """Raises NotFinite if the weights are NaN or infinite. Such weights must not be saved."""
        finite = torch.stack([torch.isfinite(p).all() for p in self.parameters])
        if not finite.all():
            raise self.not_finite(f"weights are not finite {self.where()}")

    def where(self) -> str:
        return f"after update {self.state.update} (epoch {self.state.epoch})"

    def not_finite(self, what: str) -> NotFinite:
        """The error that ends training: what happened and where, what has been saved, what may help."""
        good = self.saver.last_good or "none has been written yet"
        if self.task.stateful and not all(layer.cell.bounded for layer in self.model.layers):
            hint = "A carried state of this cell can grow without bound: --reset-state may help"
        else:
            hint = self.advice()
        return NotFinite(f"the {what}; last good checkpoint: {good}. {hint}")

    def advice(self) -> str:
        smaller = "--lr or --clip-norm" if self.config.clip_norm else "--lr"
        return f"A smaller {smaller} may help"


def _broken(reading: Reading, loss: float, norm: float) -> str:
    """Says which number of an update is not finite, and where."""
    what = f"loss is {loss}" if not math.isfinite(loss) else f"gradient norm is {norm}"
    span = f"batch {reading.first}"
    if reading.last > reading.first:
        span = f"batches {reading.first} to {reading.last}"
    return f"{what} at update {reading.update} (epoch {reading.epoch}, {span})"


def _on_cpu(state: State | None) -> State | None:
    if state is None:
        return None
    return [{name: value.cpu() for name, value in layer.items()} for layer in state]
