"""Files that are truncated while training reads them give an error that names the file, not a SIGBUS."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tsm.plugin.data.file_array import FileArray

SRC = Path(__file__).resolve().parents[2] / "src"
CASES = [
    # data, the file that is truncated, flags, exit code
    ("ptb", "train.bin", "--arch lstm_lm --bptt 5", 2),
    ("ptb", "valid.bin", "--arch lstm_lm --bptt 5", 2),
    ("imdb", "train.bin", "--arch lstm_classifier --task classification", 2),
    ("imdb", "train.idx", "--arch lstm_classifier --task classification", 2),
    ("mnist", "train.images.npy", "--arch lstm_classifier --task smnist", 0),  # in memory
]
# Each case runs in a new process, forked from one that has loaded torch.
PROGRAM = """
import json, os, sys
from pathlib import Path
from tsm.plugin.reproduce.stand_in import make_stand_in
from tsm.plugin.cli.train import main
from tsm.plugin.train.loop import Trainer

def run(folder, kind, lost, flags):
    make_stand_in(kind, folder)
    update = Trainer.update
    def cut_after_two(trainer, batches):
        update(trainer, batches)
        if trainer.state.update == 2:
            os.truncate(folder / lost, 0)
    Trainer.update = cut_after_two
    common = "--cpu --no-save --log-format none --batch-size 2 --decoder-hidden-size 3 --max-epoch 3"
    return main([str(folder), *flags.split(), *common.split()])

for number, (kind, lost, flags, _) in enumerate(json.loads(sys.argv[2])):
    child = os.fork()
    if child == 0:
        os._exit(run(Path(sys.argv[1]) / str(number), kind, lost, flags))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_file_cut_short_in_training(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(CASES)],
        env={**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    codes = [int(line) for line in done.stdout.split()]
    assert codes == [code for *_, code in CASES], done.stdout + done.stderr
    for number, (_, lost, _, code) in enumerate(CASES):
        message = f"{tmp_path / str(number) / lost}: truncated while it was in use\n"
        assert (message in done.stderr) == bool(code), done.stderr


def test_it_is_the_array(tmp_path):
    numbers = np.arange(100, dtype="<i8")
    (tmp_path / "a").write_bytes(b"head" + numbers.tobytes() + b"tail")
    array = FileArray(tmp_path / "a", numbers.dtype.str, 4, 100)
    assert len(array) == 100 and array[0] == 0 and array[-1] == 99
    for part in (slice(3, 9), slice(None), slice(-5, None), slice(50, 10), slice(90, 1000)):
        assert np.array_equal(array[part], numbers[part])
    assert np.array_equal(np.asarray(array), numbers)
    assert np.asarray(array, dtype=np.float32).dtype == np.float32
    for outside in (100, -101):
        with pytest.raises(IndexError):
            array[outside]
    with pytest.raises(ValueError, match="step is 2"):
        array[::2]


def test_a_forgotten_array_closes_its_file_without_a_warning(tmp_path):
    (tmp_path / "a").write_bytes(bytes(8))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        array = FileArray(tmp_path / "a", "<i8", 0, 1)
        number = array._file
        assert array[0] == 0 and os.fstat(number).st_size == 8
        del array
        gc.collect()
    assert not found
    with pytest.raises(OSError):
        os.fstat(number)
