"""Every registered architecture, and the papers' presets: sizes, gradients, chunks, rebuilding."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from tolerances import assert_close
from tsm.plugin import build_from_config, build_model, list_architectures
from tsm.plugin.archs import get_architecture
from tsm.plugin.models import SequenceModel, Sizes, count_parameters
from tsm.plugin.models.build import CONFIGS, MODELS, resolve

B, T, V, C = 3, 9, 11, 4
KINDS = [
    "lstm",
    "chrono_lstm",
    "fast_lstm",
    "softsign_lstm",
    "refine_lstm",
    "ur_lstm",
    "decay_lstm",
    "slstm",
    "plstm",
    "fast_plstm",
    "gru",
    "min_gru",
    "janet",
    "nru",
    "mts_lstm",
    "awd_lstm",
]
PAPERS = [
    "plstm_lm_ptb_char",
    "lstm_lm_ptb_char",
    "plstm_lm_text8",
    "lstm_lm_text8",
    "plstm_classifier_imdb",
    "lstm_classifier_imdb",
    "chrono_lstm_classifier_imdb",
    "awd_lstm_lm_ptb",
    "awd_lstm_lm_wt2",
    "mts_lstm_lm_ptb",
    "mts_lstm_lm_wt2",
    "fast_lstm_lm_ptb",
    "refine_lstm_lm_ptb",
    "plstm_classifier_smnist",
    "fast_lstm_classifier_psmnist",
]

every_architecture = pytest.mark.parametrize("arch", list_architectures())


def test_the_settings_known_before_torch_are_those_of_the_families():
    assert set(CONFIGS) <= set(MODELS)
    for name, config in CONFIGS.items():
        assert MODELS.get(name).Config is config


def small(arch: str, **overrides: Any) -> SequenceModel:
    """A model of this architecture with all its parts, small enough for a test."""
    family = get_architecture(arch).model
    sizes = {"vocab_size": V} if family == "lm" else {"vocab_size": V, "num_classes": C}
    embed = resolve(arch, {}, Sizes(**sizes))["decoder_embed_dim"]
    given = {"decoder_hidden_size": 8, "decoder_layers": 2, "decoder_embed_dim": embed and 6}
    return build_model(arch, **sizes, **{**given, **overrides})


def tokens() -> Tensor:
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


def logits_shape(model: SequenceModel) -> tuple[int, ...]:
    return {"lm": (B, T, V), "tagger": (B, T, C), "classifier": (B, C)}[model.config["model"]]


def test_all_names_that_people_rely_on_are_there() -> None:
    families = [f"{kind}_{family}" for kind in KINDS for family in ("lm", "classifier", "tagger")]
    assert not set(families + PAPERS) - set(list_architectures())
    assert set(list_architectures("lm")) == {a for a in list_architectures() if "_lm" in a}


@pytest.mark.parametrize(
    "arch, sizes, count",
    [
        ("lstm_lm_ptb_char", {"vocab_size": 50}, 2_232_538),
        ("plstm_lm_ptb_char", {"vocab_size": 50}, 2_225_714),
        ("lstm_lm_text8", {"vocab_size": 27}, 3_218_971),
        ("plstm_lm_text8", {"vocab_size": 27}, 3_222_875),
        ("lstm_classifier_imdb", {"vocab_size": 25_002, "num_classes": 2}, 117_506),
        ("chrono_lstm_classifier_imdb", {"vocab_size": 25_002, "num_classes": 2}, 117_506),
        ("plstm_classifier_imdb", {"vocab_size": 25_002, "num_classes": 2}, 118_274),
        ("awd_lstm_lm_ptb", {"vocab_size": 10_000}, 24_210_800),
        ("mts_lstm_lm_ptb", {"vocab_size": 10_000}, 24_210_800),
        ("plstm_lm_ptb", {"vocab_size": 10_000}, 24_198_352),
        ("awd_lstm_lm_wt2", {"vocab_size": 33_278}, 33_545_278),
    ],
)
def test_published_parameter_counts(arch: str, sizes: dict[str, int], count: int) -> None:
    model = build_model(arch, **sizes)
    assert count_parameters(model) == count
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == count


def test_character_plstm_with_27_symbols_has_the_published_size() -> None:
    assert round(count_parameters(build_model("plstm_lm_ptb_char", vocab_size=27)) / 1e6, 2) == 2.15


@every_architecture
def test_gradient_reaches_every_trainable_parameter(arch: str) -> None:
    model = small(arch)
    logits, state = model(tokens())
    assert tuple(logits.shape) == logits_shape(model)
    assert [set(layer.cell.states) for layer in model.layers] == [set(s) for s in state]
    logits.square().mean().backward()
    unreached = [
        name
        for name, p in model.named_parameters()
        if p.requires_grad and (p.grad is None or not p.grad.isfinite().all() or not p.grad.any())
    ]
    assert not unreached


@every_architecture
def test_chunks_with_carried_state_give_what_the_whole_gives(arch: str) -> None:
    model = small(arch).eval()
    x = tokens()
    with torch.no_grad():
        whole, end = model(x)
        parts, state = [], None
        for chunk in x.split([4, 1, 4], dim=1):
            logits, state = model(chunk, state=state)
            parts.append(logits)
    found = parts[-1] if whole.dim() == 2 else torch.cat(parts, dim=1)
    assert_close(found, whole, "chunks", "float32", "logits")
    for got, want in zip(state, end, strict=True):
        for name in want:
            assert_close(got[name], want[name], "chunks", "float32", name)


@every_architecture
def test_config_rebuilds_an_equal_model(arch: str) -> None:
    model = small(arch).eval()
    config = json.loads(json.dumps(model.config))
    assert config["arch"] == arch
    again = build_from_config(config).eval()
    again.load_state_dict(model.state_dict())
    assert again.config == model.config and again.settings == model.settings
    assert [n for n, _ in again.named_parameters()] == [n for n, _ in model.named_parameters()]
    x = tokens()
    assert torch.equal(again(x)[0], model(x)[0])


@every_architecture
def test_takes_float_input(arch: str) -> None:
    family = get_architecture(arch).model
    output = {"vocab_size": V} if family == "lm" else {"num_classes": C}
    model = build_model(arch, input_size=2, decoder_hidden_size=8, decoder_layers=1, **output)
    assert tuple(model(torch.randn(B, T, 2))[0].shape) == logits_shape(model)
    assert model.embed is None


@pytest.mark.parametrize("family", ["lm", "classifier", "tagger"])
def test_any_registered_cell_may_be_named(cell: type, family: str) -> None:
    model = small(f"lstm_{family}", cell=cell.name)
    assert {layer.cell for layer in model.layers} == {cell}
    assert tuple(model(tokens())[0].shape) == logits_shape(model)


def forget_bias(model: SequenceModel) -> Tensor:
    layer = model.layers[0]
    start = layer.cell.gates.index("f") * layer.hidden_size
    return layer.effective_bias().detach()[start : start + layer.hidden_size]


@pytest.mark.parametrize(
    "arch, bias",
    [
        ("fast_lstm_lm", 0.881373587),
        ("softsign_lstm_classifier", 1.718281828),
        ("refine_lstm_tagger", 1.0),
        ("lstm_lm_ptb", 1.0),
        ("lstm_classifier_smnist_fg", 1.0),
    ],
)
def test_forget_gates_of_the_fast_gate_papers_rows_start_at_sigmoid_of_one(
    arch: str, bias: float
) -> None:
    torch.testing.assert_close(forget_bias(small(arch)), torch.full((8,), bias))


@pytest.mark.parametrize("arch", ["lstm_lm", "lstm_classifier_imdb", "awd_lstm_lm_ptb"])
def test_other_rows_have_no_forget_offset(arch: str) -> None:
    assert forget_bias(small(arch, decoder_hidden_size=64, decoder_layers=1)).abs().max() <= 0.41


def test_chrono_biases_follow_t_max() -> None:
    model = small("chrono_lstm_tagger", t_max=2.01)
    assert forget_bias(model).abs().max() < 0.01
    assert model.config["init"] == "chrono:t_max=300" and model.config["t_max"] == 2.01
    assert forget_bias(small("janet_lm", decoder_hidden_size=512)).max() > 4  # log 149 = 5.004


def test_recipe_of_the_awd_presets() -> None:
    rates = ("dropout", "dropouth", "dropouti", "dropoute", "wdrop")
    expected = {"ptb": (0.4, 0.25, 0.4, 0.1, 0.5), "wt2": (0.4, 0.2, 0.65, 0.1, 0.5)}
    for corpus, values in expected.items():
        for kind in ("awd", "mts"):
            found = resolve(f"{kind}_lstm_lm_{corpus}", {}, Sizes(vocab_size=9))
            assert tuple(found[r] for r in rates) == values


@pytest.mark.parametrize(
    "layers, frozen", [(1, [True]), (2, [True, True]), (4, [True] * 3 + [False])]
)
def test_multi_timescale_layers(layers: int, frozen: list[bool]) -> None:
    model = small("mts_lstm_lm", decoder_layers=layers)
    assert [hasattr(layer, "frozen") for layer in model.layers] == frozen


def test_multi_timescales_are_the_papers() -> None:
    """Timescales: layer 1 has 3 and 4, half of the units each; layer 2 has 0.174 to 360,000 over 1150 units;
    those of layer 3 are not fixed."""
    model = build_model("mts_lstm_lm_ptb", vocab_size=9)
    assert [layer.hidden_size for layer in model.layers] == [1150, 1150, 400]
    first, second, third = (layer.effective_bias().detach().double() for layer in model.layers)
    timescale = [1 / torch.nn.functional.softplus(-b[1150:2300]) for b in (first, second)]
    torch.testing.assert_close(
        timescale[0],
        torch.tensor([3.0, 4.0], dtype=torch.float64).repeat_interleave(575),
        rtol=1e-6,
        atol=0,
    )
    assert timescale[1][-1].item() == pytest.approx(0.174, abs=5e-4)
    assert timescale[1][0].item() == pytest.approx(360e3, rel=0.01)
    assert torch.equal(first[:1150], -first[1150:2300])
    assert third.abs().max() <= 1 / 400**0.5


def test_frozen_biases_stay_bit_for_bit_while_the_free_layer_learns() -> None:
    model = small("mts_lstm_lm", decoder_layers=3, decoder_embed_dim=8)
    before = [layer.effective_bias().detach().clone() for layer in model.layers]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=0.1)
    x = tokens()
    for _ in range(20):
        logits, _ = model(x[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for number, (layer, old) in enumerate(zip(model.layers, before, strict=True)):
        new, width = layer.effective_bias().detach(), layer.hidden_size
        same = [
            torch.equal(new[g * width : g * width + width], old[g * width : g * width + width])
            for g in range(4)
        ]
        assert same == ([True, True, False, False] if number < 2 else [False] * 4)
