"""What help(), editors and type checkers show of the public names: their own text, arguments and types."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ("tsm", "tsm.nn", "tsm.plugin", "tsm.plugin.layers", "tsm.plugin.cells", "tsm.export")
PUBLIC = {
    f"{module}.{name}": getattr(importlib.import_module(module), name)
    for module in MODULES
    for name in importlib.import_module(module).__all__
    if name != "__version__"
}


LAYERS = [name for name in PUBLIC if hasattr(PUBLIC[name], "forward")]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_text_is_our_own_and_names_the_arguments(name):
    value = PUBLIC[name]
    own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own and own.strip(), f"{name} has no text"
    if inspect.isclass(value):
        init = value.__init__
        ours = "." in name and inspect.isfunction(init) and init.__module__.startswith("tsm.")
        own += (init.__doc__ or "") if ours else ""
    if callable(value) and inspect.signature(value).parameters:
        for argument in inspect.signature(value).parameters:
            assert re.search(rf"\b{argument}\b", own), (
                f"the text of {name} does not name {argument}"
            )


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_explains_every_argument(name):
    value = PUBLIC[name]
    for function in (value.__init__, value.forward):
        text = function.__doc__
        for argument, parameter in inspect.signature(function).parameters.items():
            if argument != "self":
                assert parameter.annotation is not parameter.empty, f"{argument} has no type"
                explained = rf"^ *{argument}: \S.*(\n .*)?[.]$"
                assert re.search(explained, text, re.MULTILINE), argument
    ours = [base for base in value.__mro__ if base.__module__.startswith("tsm.")]
    for method in {n for base in ours for n, f in vars(base).items() if inspect.isfunction(f)}:
        if not method.startswith("_"):
            assert next(vars(b)[method] for b in ours if method in vars(b)).__doc__, method


CALLS = """
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import tsm.nn
from tsm.plugin.layers import Recurrent

x = torch.randn(5, 2, 3)
packed = pack_sequence([x[0]])
lstm = tsm.nn.LSTM(3, 4, 2, bidirectional=True, dtype=torch.float64, init="chrono")
gru = tsm.nn.GRU(input_size=3, hidden_size=4)
plstm = tsm.nn.PLSTM(3, 4, eps=1e-4)
rnn = tsm.nn.RNN(cell="janet", input_size=3, hidden_size=4, num_layers=2)
output, (h, c) = lstm(x)
output, (h, c) = lstm(x, (h, c), lengths=[5, 1])
_, (h, c, age) = plstm(x, None, 0.5)
_, (h, c, age) = plstm(x, (h, c, age), dt=x)
states = rnn(x)[1]
reveal_type(lstm)  # LSTM
reveal_type(lstm(x))  # tuple[Tensor, tuple[Tensor, Tensor]]
reveal_type(gru(x))  # tuple[Tensor, Tensor]
reveal_type(plstm(packed)[0].batch_sizes)  # Tensor
reveal_type(plstm.forward(x))  # tuple[Tensor, tuple[Tensor, Tensor, Tensor]]
reveal_type(rnn(x))  # tuple[Tensor, Any]
reveal_type(tsm.nn.LSTM.from_torch(torch.nn.LSTM(3, 4)))  # LSTM
reveal_type(Recurrent("plstm", 3, 4)(x, dt=1.0))  # tuple[Tensor, dict[str, Tensor]]
tsm.nn.LSTM("lstm", 3)  # error: arg-type
tsm.nn.LSTM(3)  # error: call-arg
tsm.nn.PLSTM(3, 4, num_layers="2")  # error: arg-type
tsm.nn.GRU(3, 4, bias=True, init_options=[1])  # error: arg-type
tsm.nn.RNN(3, 4)  # error: arg-type call-arg
lstm(x, h)  # error: arg-type
gru(x, (h, c))  # error: arg-type
plstm(x, (h, c))  # error: arg-type
lstm([1.0])  # error: type-var
Recurrent("plstm", 3)  # error: call-arg
Recurrent("plstm", 3, 4)(x, (h, c))  # error: arg-type
"""


@pytest.mark.slow
def test_a_type_checker_sees_the_arguments_and_the_results(tmp_path, request):
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    cache = request.config.cache.mkdir("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--no-error-summary",
        f"--cache-dir={cache}",
    ]
    command += ["--follow-imports=silent", "--show-error-codes", str(file)]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True)
    answers: dict[int, list[str]] = {}
    for number, text in re.findall(r"calls\.py:(\d+): (?:error|note): (.*)", done.stdout):
        revealed = re.match('Revealed type is "(.*)"', text)
        code = re.search(r"\[([a-z-]+)\]$", text)
        if revealed:
            short = re.sub(r"(builtins|torch|tsm)\.[\w.]*?(\w+)(?=[\],\[]|$)", r"\2", revealed[1])
            answers.setdefault(int(number), []).append(short)
        elif code:
            answers.setdefault(int(number), []).append(code[1])
    expected = {
        number: rest.removeprefix("error: ").split(" ") if rest.startswith("error: ") else [rest]
        for number, line in enumerate(CALLS.splitlines(), 1)
        if (rest := line.partition("  # ")[2])
    }
    assert {n: sorted(a) for n, a in answers.items()} == expected, done.stdout + done.stderr
