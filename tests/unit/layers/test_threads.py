"""CPU training runs on torch's threads: two thread pools would compete for the cores."""

import os
import subprocess
import sys

import pytest
import torch

from tsm.plugin.layers.core import _core, on_torchs_threads

SCRIPT = """
import os, torch
from tsm.plugin.layers import Recurrent

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(3)
large = torch.ones(1 << 20, requires_grad=True)
large.exp().sum().backward()  # torch starts its threads
before = threads()
layer = Recurrent("plstm", 8, 16, backend="fused")
x = torch.randn(12, 5, 8, requires_grad=True)
layer(x)[0].sum().backward()
print(before, threads())
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
@pytest.mark.skipif(not torch.backends.openmp.is_available(), reason="torch without OpenMP")
def test_training_starts_no_threads_beside_those_of_torch():
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )
    before, after = map(int, ran.stdout.split())
    assert on_torchs_threads and before >= 3 and after == before


def test_a_library_that_is_not_loaded_shares_nothing():
    assert not _core.share_threads("libnothing-of-that-name.so")
