"""Every undocumented torch name that the layers use still has the expected meaning."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from tsm.plugin.common import torch_private as private

X = torch.ones(3)


def test_constant_for_compilers():
    def function():
        return 1

    def twin():
        return 1

    private.constant_for_compilers(function)
    torch.compiler.assume_constant_result(twin)
    assert vars(function) == vars(twin) != {}


def test_the_first_call_imports_no_compiler():
    """The first call must not import torch._dynamo, which loads about 800 modules."""
    code = """
import sys, torch
from tsm.plugin.layers import Recurrent
for dtype in (torch.float32, torch.float64):
    for backend in ("auto", "reference"):
        layer = Recurrent("plstm", 2, 3, backend=backend).to(dtype)
        layer(torch.zeros(1, 2, 2, dtype=dtype))[0].sum().backward()
print([name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_has_tangent():
    assert not private.has_tangent([X])
    with forward_ad.dual_level():
        assert not private.has_tangent([X])
        assert private.has_tangent([X, forward_ad.make_dual(X, torch.ones_like(X))])


def test_apply_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad

    x = torch.ones(2, requires_grad=True)
    y = private.apply_function(Double, x)
    y.sum().backward()
    assert torch.equal(y, 2 * X[:2]) and torch.equal(x.grad, 3 * X[:2])


def test_matmul_precision():
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    try:
        for precision in ("ieee", "tf32"):
            settings.fp32_precision = precision
            assert private.matmul_precision() == precision
    finally:
        settings.fp32_precision = before


@pytest.mark.gpu
def test_raw_stream():
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            assert private.raw_stream(torch.cuda.current_device()) == stream.cuda_stream


def test_is_transformed():
    seen = []

    def function(x):
        seen.append(private.is_transformed([X, x]))
        return x.sum()

    torch.func.grad(function)(X)
    torch.func.vmap(function)(X)
    assert seen == [True, True] and not private.is_transformed([X])


def test_is_traced():
    class Watcher(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Subclass(torch.Tensor):
        pass

    assert not private.is_traced([X, torch.nn.Parameter(X)])
    assert private.is_traced([X.as_subclass(Subclass)])
    with Watcher():
        assert private.is_traced([X])
    seen = []
    torch.jit.trace(lambda x: (seen.append(private.is_traced([x])), x + 1)[1], X, check_trace=False)
    assert seen == [True]
    compiled = torch.compile(
        lambda x: x + int(private.is_traced([x])), backend="eager", fullgraph=True
    )
    assert torch.equal(compiled(X), X + 1)


@pytest.mark.parametrize("dynamo", [True, False])
def test_in_onnx_export(dynamo, tmp_path):
    seen = []

    class Looking(torch.nn.Module):
        def forward(self, x):
            seen.append(private.in_onnx_export())
            return x + 1

    torch.onnx.export(Looking(), (X,), tmp_path / "m.onnx", dynamo=dynamo)
    assert seen and all(seen) and not private.in_onnx_export()


def test_is_plain():
    seen = []

    def look(x):
        seen.append(private.is_plain([X, x]))
        return x.square().sum()

    look(X)
    torch.func.grad(look)(X)
    torch.func.jvp(look, (X,), (X,))
    torch.jit.trace(look, X, check_trace=False)
    assert seen == [True, False, False, False]


def test_graph_is_retained():
    seen = []

    class Asks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append(private.graph_is_retained())
            return gradient

    y = Asks.apply(X.clone().requires_grad_()).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert seen == [True, False]


def test_autocast():
    meta = torch.device("meta")
    assert not private.autocast_enabled(meta) and not private.autocast_enabled(X.device)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert private.autocast_enabled(X.device)
        with private.without_autocast(X.device), private.without_autocast(meta):
            assert not private.autocast_enabled(X.device)


def test_borrowed_memory():
    owner = torch.arange(12.0).view(3, 4)
    part = owner[1:, ::2]
    same = private.borrowed(part)
    owner += 1
    assert torch.equal(same, part) and same.stride() == part.stride()
    assert same.untyped_storage()._cdata != part.untyped_storage()._cdata


def test_forget_stale_builtins():
    class Steps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.times = (0, 1, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for t in self.times:
                x = x + t
            return x

    model = Steps()
    torch.jit._builtins._register_builtin(model.times, "aten::gone")
    with pytest.raises(RuntimeError, match="builtin cannot be used as an iterable"):
        torch.jit.script(model)
    private.forget_stale_builtins(model)
    assert torch.jit.script(model)(X).tolist() == [4, 4, 4]
