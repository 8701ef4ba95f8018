"""Updates replayed as CUDA graphs: the same training, bit for bit, as with separate kernel launches."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import nullcontext

import pytest
import torch

from tsm.plugin.criterions import CRITERIONS
from tsm.plugin.train import graphs, loop
from tsm.plugin.train.loop import Trainer

from .conftest import assert_same, without_time

pytestmark = pytest.mark.gpu

LM = "--arch {cell}_lm --decoder-embed-dim 6 --decoder-hidden-size 24 --generated-tokens 3000"
LM += " --batch-size 4 --bptt 20 --log-format none --log-interval 1 --lr 0.01 --max-update 20"
FULL = LM.format(cell="plstm") + " --dropout .2 --dropouth .2 --wdrop .3 --random-bptt --bf16"
FULL = FULL.replace("--max-update 20", "--max-update 150")  # so that lengths come again
TASKS = {
    "carried state, dropout, lengths of batches drawn": FULL,
    "carried state in float32": LM.format(cell="lstm"),
    "state reset": LM.format(cell="plstm") + " --reset-state --bf16",
    "rows that start from zero": LM.format(cell="plstm") + " --reset-share .3 --dropout .2",
    "rows of unequal length": "--arch plstm_tagger --task copy --copy-length 5 --copy-length-max 9 "
    "--copy-train 64 --copy-valid 8 --batch-size 16 --decoder-hidden-size 24 --bf16 --max-update 20 "
    "--log-format none",
    "time steps": "--arch plstm_classifier --task frequency --frequency-train 64 --frequency-valid 8 "
    "--frequency-step 5 --batch-size 8 --decoder-hidden-size 24 --max-update 150 --log-format none",
    "averaged weights": LM.format(cell="lstm")
    + " --optimizer nt_asgd --lr 1 --asgd-start 8 --bf16",
}


@pytest.fixture
def replays(monkeypatch) -> list[int]:
    """One entry for every update that was replayed."""
    found: list[int] = []
    original = graphs.Recording.run

    def run(*args):
        found.append(1)
        return original(*args)

    monkeypatch.setattr(graphs.Recording, "run", run)
    return found


@pytest.mark.parametrize("flags", TASKS.values(), ids=TASKS)
def test_same_bits_as_without(runs, replays, monkeypatch, flags):
    monkeypatch.setattr(graphs, "MOST", 1000)
    assert runs("without", "--no-cuda-graphs", flags) == 0
    assert not replays
    assert runs("with", "", flags) == 0
    updates = runs.checkpoint("with")["train_state"]["update"]
    assert len(replays) == updates - 1  # each shape is recorded when it first comes
    assert_same(without_time(runs.checkpoint("with")), without_time(runs.checkpoint("without")))


def test_every_compiled_cell(runs, replays, compiled_cell):
    flags = LM.format(cell="lstm") + f" --cell {compiled_cell.name} --bf16"
    assert runs("without", "--no-cuda-graphs", flags) == 0
    assert runs("with", "", flags) == 0
    assert replays
    assert_same(without_time(runs.checkpoint("with")), without_time(runs.checkpoint("without")))


def test_nru(runs, replays):
    flags = LM.format(cell="lstm") + " --cell nru --bf16"
    assert runs("without", "--no-cuda-graphs", flags) == 0
    assert runs("with", "", flags) == 0
    assert replays
    assert_same(without_time(runs.checkpoint("with")), without_time(runs.checkpoint("without")))


@pytest.mark.parametrize("name", ["nru", "plstm"])
def test_layers_without_kernels(runs, replays, name):
    flags = LM.format(cell="lstm") + f" --cell {name} --backend reference"
    assert runs("without", "--no-cuda-graphs", flags) == 0
    assert runs("with", "", flags) == 0
    assert len(replays) > 5
    assert_same(without_time(runs.checkpoint("with")), without_time(runs.checkpoint("without")))


def test_a_stopped_run_goes_on_as_if_unbroken(runs, replays):
    assert runs("whole", "", FULL) == 0
    runs.stop_after(2, "stopped", "", FULL)
    assert runs("stopped", "", FULL) == 0
    assert replays
    assert_same(without_time(runs.checkpoint("stopped")), without_time(runs.checkpoint("whole")))


def test_a_criterion_that_looks_at_its_numbers_trains_without(runs, replays, monkeypatch, capsys):
    original = CRITERIONS.get("cross_entropy").__call__

    def curious(self, logits, batch):
        loss, count = original(self, logits, batch)
        assert float(loss.detach()) > 0  # reads from the GPU, which is not allowed during capture
        return loss, count

    flags = FULL.replace("--log-format none", "--log-format simple")
    assert runs("plain", "--no-cuda-graphs", flags) == 0
    monkeypatch.setattr(CRITERIONS.get("cross_entropy"), "__call__", curious)
    assert runs("curious", "", flags) == 0
    assert not replays
    assert "not replayed as CUDA graphs" in "".join(capsys.readouterr())
    assert_same(without_time(runs.checkpoint("curious")), without_time(runs.checkpoint("plain")))


def test_garbage_of_an_earlier_run_does_not_end_a_capture(runs, replays, monkeypatch):
    """Graphs in a cycle are freed by the collector. Here they become garbage during a run, and it would collect
    inside captures, if it may."""
    loss, init = CRITERIONS.get("cross_entropy").__call__, graphs.UpdateGraphs.__init__
    before, made, freed = gc.get_threshold(), [], []

    def begin(self, *given):
        init(self, *given)
        self.itself = self
        made.append(self)
        weakref.finalize(self, freed.append, True)

    def tidy(self, logits, batch):
        if torch.cuda.is_current_stream_capturing():
            del made[:-1]
            if gc.isenabled():
                gc.collect()
        return loss(self, logits, batch)

    # It would not let them go.
    monkeypatch.setattr(loop, "old_objects_at_rest", nullcontext)
    monkeypatch.setattr(graphs.UpdateGraphs, "__init__", begin)
    monkeypatch.setattr(CRITERIONS.get("cross_entropy"), "__call__", tidy)
    gc.set_threshold(0)
    try:
        assert runs("earlier", "", FULL) == 0
        once = len(replays)
        assert runs("later", "", FULL) == 0
        assert len(made) == 1 and not freed
        gc.collect()
    finally:
        gc.set_threshold(*before)
    assert len(replays) == 2 * once > 0 and freed == [True]


def test_backward_runs_in_the_callers_thread(runs, monkeypatch):
    threads, original = set(), Trainer.backward

    def backward(trainer, batch):
        hook = trainer.parameters[0].register_hook(lambda grad: threads.add(threading.get_ident()))
        try:
            return original(trainer, batch)
        finally:
            hook.remove()

    monkeypatch.setattr(Trainer, "backward", backward)
    assert runs("plain", "--no-cuda-graphs", LM.format(cell="plstm")) == 0
    assert threads == {threading.get_ident()}


def test_no_more_shapes_are_recorded_than_said(runs, replays, monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 1)
    kept: list[Trainer] = []
    original = Trainer.finish

    def finish(trainer):
        kept.append(trainer)
        return original(trainer)

    monkeypatch.setattr(Trainer, "finish", finish)
    assert runs("few", "", FULL) == 0
    assert len(kept[0].graphs.recordings) == 1


def test_a_shape_that_cannot_be_recorded_at_first_sight_runs_once_before(
    runs, replays, monkeypatch, capsys
):
    """As if a library had to load code for every new shape, which may end a capture."""
    original = Trainer.backward
    ended: list[bool] = []

    def backward(trainer, batch):
        found = original(trainer, batch)  # draws masks
        if torch.cuda.is_current_stream_capturing() and not ended:
            ended.append(True)
            raise RuntimeError("not permitted while a stream is captured")
        return found

    flags = FULL.replace("--log-format none", "--log-format simple")
    assert runs("plain", "--no-cuda-graphs", flags) == 0
    monkeypatch.setattr(Trainer, "backward", backward)
    assert runs("with", "", flags) == 0
    assert ended and len(replays) > 5
    assert "not replayed" not in "".join(capsys.readouterr())
    assert_same(without_time(runs.checkpoint("with")), without_time(runs.checkpoint("plain")))


def test_the_second_half_is_for_shapes_that_come_again(runs, replays, monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 4)
    seen: list[int] = []
    original = graphs.UpdateGraphs._try_to_record

    def record(self, batch, state, ran_before):
        seen.append(ran_before)
        return original(self, batch, state, ran_before)

    monkeypatch.setattr(graphs.UpdateGraphs, "_try_to_record", record)
    assert runs("few", "", FULL) == 0
    assert seen == [False, False, True, True]
