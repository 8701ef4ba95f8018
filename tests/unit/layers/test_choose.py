"""Which implementation runs a layer, and the message if it is not a fast one."""

from __future__ import annotations

import pytest
import torch

import emulated_cuda
from tsm.plugin.cells import get_cell
from tsm.plugin.layers import choose as chooser
from tsm.plugin.layers import gpu
from tsm.plugin.layers.choose import choose

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def capability(monkeypatch):
    """Installs a fake GPU with a given compute capability; no kernel runs on it."""

    def set_to(found):
        emulated_cuda.install(monkeypatch)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: found)
        chooser._found_why.cache_clear()

    yield set_to
    chooser._found_why.cache_clear()


def test_on_the_cpu(compiled_cell):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert choose(compiled_cell, dtype, CPU).name == "layer_cpu"
    assert "float16" in choose(compiled_cell, torch.float16, CPU).why


def test_on_a_gpu(compiled_cell, capability):
    capability((9, 0))
    assert choose(compiled_cell, torch.bfloat16, CUDA).name == "layer_cuda"
    assert "float64" in choose(compiled_cell, torch.float64, CUDA).why


@pytest.mark.parametrize(
    "missing, why", [("has_products", "cublasLt"), ("cuda_device_count", "driver")]
)
def test_on_a_gpu_without(compiled_cell, capability, monkeypatch, missing, why):
    capability((9, 0))
    monkeypatch.setattr(gpu._core, missing, lambda: 0)
    route = choose(compiled_cell, torch.bfloat16, CUDA)
    assert route.name == "reference" and why in route.why


def test_nru(capability, monkeypatch):
    """It has kernels on a GPU only."""
    nru = get_cell("nru")
    assert choose(nru, torch.float32, CPU).why == "cell 'nru' is not element-wise"
    capability((9, 0))
    assert choose(nru, torch.float32, CUDA) == choose(nru, torch.bfloat16, CUDA)
    assert choose(nru, torch.bfloat16, CUDA).name == "nru_cuda"
    assert "float64" in choose(nru, torch.float64, CUDA).why
    chooser._found_why.cache_clear()
    monkeypatch.setattr(gpu._core, "has_products", lambda: False)
    assert "cublasLt" in choose(nru, torch.bfloat16, CUDA).why


def test_on_a_gpu_older_than_the_kernels(compiled_cell, capability):
    capability((7, 5))
    route = choose(compiled_cell, torch.float32, CUDA)
    assert route.name == "reference" and "compute capability 7.5" in route.why


def test_on_a_gpu_that_the_core_was_not_built_for(compiled_cell, capability, monkeypatch):
    capability((8, 6))
    monkeypatch.setattr(gpu._core, "recurrence_cuda_path", lambda **_: "")
    route = choose(compiled_cell, torch.float32, CUDA)
    assert route.name == "reference" and "no code for compute capability 8.6" in route.why
