"""The model families and how they are built: inputs, lengths, tied weights, settings, errors."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import torch
from torch import Tensor

from tolerances import assert_close
from tsm.plugin import build_from_config, build_model, register_model_architecture
from tsm.plugin.archs import config_class
from tsm.plugin.config import add_flags
from tsm.plugin.models import Features, SequenceModel, count_parameters
from tsm.plugin.models.build import ARCHITECTURES, register_model
from tsm.plugin.models.specs import format_options, parse_options

B, T, V, C = 3, 7, 11, 4
SMALL = {"decoder_hidden_size": 8}


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(V, (B, T))


@pytest.fixture
def classifier() -> SequenceModel:
    return build_model(
        "plstm_classifier", vocab_size=V, num_classes=C, decoder_layers=2, **SMALL
    ).eval()


# Inputs


def test_one_hot_tokens_equal_an_explicit_one_hot_input(tokens: Tensor) -> None:
    model = build_model("plstm_lm", vocab_size=V, decoder_embed_dim=0, **SMALL)
    explicit = build_model("plstm_lm", vocab_size=V, input_size=V, **SMALL)
    explicit.load_state_dict(model.state_dict())
    one_hot = torch.eye(V)[tokens]
    (got, _), (want, _) = model(tokens), explicit(one_hot)
    assert torch.equal(got, want)
    got.square().sum().backward()
    want.square().sum().backward()
    for a, b in zip(model.parameters(), explicit.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    assert torch.equal(model(tokens.int())[0], got)


def test_float64_models_take_tokens(tokens: Tensor) -> None:
    for embed in (0, 5):
        model = build_model("lstm_lm", vocab_size=V, decoder_embed_dim=embed, **SMALL).double()
        assert model(tokens)[0].dtype == torch.float64


def test_bfloat16_autocast(tokens: Tensor) -> None:
    for arch in ("plstm_lm", "plstm_classifier"):
        model = build_model(arch, vocab_size=V, num_classes=C, dropout=0.2, **SMALL)
        with torch.autocast("cpu", torch.bfloat16):
            logits, state = model(tokens)
        assert logits.dtype == torch.bfloat16 and state[0]["c"].dtype == torch.float32
        logits.float().sum().backward()


def test_pretrained_embeddings_are_neither_trained_nor_counted(tokens: Tensor) -> None:
    table = torch.randn(V, 5)
    sizes: dict[str, Any] = dict(vocab_size=V, num_classes=C, decoder_embed_dim=5, **SMALL)
    model = build_model("lstm_classifier", pretrained=table, **sizes)
    assert torch.equal(model.embed.weight, table) and model.config["freeze_embed"]
    assert count_parameters(model) == 4 * 8 * (5 + 8 + 1) + 8 * C + C
    model(tokens)[0].sum().backward()
    again = build_from_config(model.config)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.embed.weight, table)
    tuned = build_model("lstm_classifier", pretrained=table, freeze_embed=False, **sizes)
    assert count_parameters(tuned) == count_parameters(model) + table.numel()
    assert torch.equal(tuned.embed.weight, table)
    assert tuned.embed.weight.data_ptr() != table.data_ptr()


def test_dt_reaches_every_layer(classifier: SequenceModel, tokens: Tensor) -> None:
    dt = torch.rand(B, T) + 0.5
    assert torch.equal(classifier(tokens, dt=torch.ones(B, T))[0], classifier(tokens)[0])
    _, state = classifier(tokens, dt=dt)
    _, plain = classifier(tokens)
    assert all(not torch.equal(a["age"], b["age"]) for a, b in zip(state, plain, strict=True))


# Lengths


def test_classifier_reads_the_last_valid_step(classifier: SequenceModel, tokens: Tensor) -> None:
    lengths = [T, 3, 1]
    logits, state = classifier(tokens, lengths=lengths)
    for row, length in enumerate(lengths):
        alone, _ = classifier(tokens[row : row + 1, :length])
        assert_close(logits[row : row + 1], alone, "chunks", "float32")
    found = classifier.features(tokens, lengths=lengths)
    assert torch.equal(found.raw[1, 2], found.dropped[1]) and not found.raw[1, 3:].any()
    later, after = classifier(tokens, lengths=[T, 0, 0], state=state)
    assert torch.equal(later[1:], logits[1:])
    assert torch.equal(after[0]["age"][1:], state[0]["age"][1:])


def test_padding_does_not_matter(classifier: SequenceModel, tokens: Tensor) -> None:
    lengths = torch.tensor([5, 2, 1])
    padded = torch.where(torch.arange(T) < lengths[:, None], tokens, 0)
    assert torch.equal(classifier(tokens, lengths)[0], classifier(padded, lengths)[0])


def test_classifier_may_read_step_t_through_the_padding(
    classifier: SequenceModel, tokens: Tensor
) -> None:
    end = build_from_config({**classifier.config, "read_at": "end"}).eval()
    end.load_state_dict(classifier.state_dict())
    assert torch.equal(end(tokens, lengths=[T, 3, 1])[0], classifier(tokens)[0])


# Heads


def test_tied_weights_are_one_parameter(tokens: Tensor) -> None:
    options = {"share_decoder_input_output_embed": True, "emsize": 6, "nlayers": 3}
    model = build_model("lstm_lm", vocab_size=V, nhid=8, **options)
    assert model.decoder.weight is model.embed.weight
    assert [layer.hidden_size for layer in model.layers] == [8, 8, 6]
    table = model.embed.weight.detach().clone()
    assert table.abs().max() <= 0.1 and not model.decoder.bias.any()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(tokens)[0].square().sum().backward()
    optimizer.step()
    assert torch.equal(model.decoder.weight, model.embed.weight)
    assert not torch.equal(model.decoder.weight, table)
    again = build_from_config(model.config)
    again.load_state_dict(model.state_dict())
    assert again.decoder.weight is again.embed.weight
    assert torch.equal(again.eval()(tokens)[0], model.eval()(tokens)[0])


def test_one_hot_models_start_uniform_everywhere() -> None:
    model = build_model("lstm_lm", vocab_size=V, decoder_embed_dim=0, decoder_hidden_size=64)
    for parameter in model.parameters():
        assert 0.05 < parameter.abs().max() <= 1 / 8


def test_features_give_what_regularisers_need(tokens: Tensor) -> None:
    model = build_model("lstm_lm", vocab_size=V, dropout=0.5, **SMALL)
    found = model.features(tokens)
    assert isinstance(found, Features)
    kept = found.dropped != 0
    assert torch.equal(kept, kept[:, :1].expand_as(kept)) and not kept.all()
    torch.testing.assert_close(found.dropped[kept], 2 * found.raw[kept])
    assert torch.equal(found.raw[:, -1], found.state[-1]["h"])
    model.eval()
    found = model.features(tokens)
    assert torch.equal(found.raw, found.dropped)
    assert torch.equal(model.head(found.dropped), model(tokens)[0])


@pytest.mark.parametrize("name", ["dropout", "dropouth", "dropouti", "dropoute", "wdrop"])
@pytest.mark.parametrize("embed", [0, 6])
def test_each_dropout_acts_in_training_only(name: str, embed: int, tokens: Tensor) -> None:
    model = build_model(
        "plstm_lm", vocab_size=V, decoder_layers=2, decoder_embed_dim=embed, **SMALL, **{name: 0.5}
    )
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


# Settings


def test_settings_reach_the_layers() -> None:
    model = build_model(
        "plstm_tagger",
        vocab_size=V,
        num_classes=C,
        decoder_hidden_size=(8, 6),
        eps=1e-5,
        p=0.7,
        backend="reference",
        wdrop=0.25,
        freeze_recurrent=True,
    )
    assert [layer.hidden_size for layer in model.layers] == [8, 6]
    for layer in model.layers:
        assert layer.options == {"eps": 1e-5, "p": 0.7} and layer.backend == "reference"
        assert layer.weight_dropout == 0.25 and not layer.weight_h.requires_grad
    nru = build_model(
        "nru_lm", vocab_size=V, cell_options={"memory_size": 36, "layer_norm": True}, **SMALL
    )
    assert nru.layers[0].options == {"memory_size": 36, "heads": 4, "layer_norm": True}
    assert build_from_config(nru.config).settings == nru.settings


def test_options_survive_writing() -> None:
    options = {"a": 1, "b": 1e-5, "c": True, "d": (3, 4.5)}
    assert parse_options("x", format_options(options)) == options


def test_flags_of_the_settings_build_the_same_model() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, config_class("awd_lstm_lm"))
    line = (
        "--emsize 6 --nhid 8,7,6 --dropouth .1 --dropouti .2 --dropoute .3 --wdrop .4 --dropout .5 "
        "--cell plstm --eps 1e-4 --no-freeze-recurrent"
    )
    given = vars(parser.parse_args(line.split()))
    model = build_model("awd_lstm_lm", vocab_size=V, **given)
    assert model.config["decoder_hidden_size"] == [8, 7, 6] and model.config["decoder_layers"] == 3
    assert model.config["wdrop"] == 0.4 and model.layers[0].cell.name == "plstm"


@pytest.fixture
def registered() -> Any:
    """Removes architectures that a test registered."""
    before = dict(ARCHITECTURES._entries)
    yield
    ARCHITECTURES._entries = before


@pytest.mark.usefixtures("registered")
def test_third_party_architectures_register_the_same_way(tokens: Tensor) -> None:
    @register_model_architecture("lm", "deep_plstm_lm")
    def deep(chosen: Any) -> dict[str, Any]:
        layers = chosen.get("decoder_layers", 3)
        return {"cell": "plstm", "decoder_layers": layers, "decoder_hidden_size": (8,) * layers}

    model = build_model("deep_plstm_lm", vocab_size=V)
    assert (
        len(model.layers) == 3
        and len(build_model("deep_plstm_lm", V, decoder_layers=2).layers) == 2
    )
    with pytest.raises(ValueError, match="'deep_plstm_lm' is already registered"):
        register_model_architecture("lm", "deep_plstm_lm")(deep)
    del ARCHITECTURES._entries["deep_plstm_lm"]
    assert build_from_config(model.config).config == model.config  # the preset is no longer needed


# Errors


def test_embeddings_start_uniform_or_normal():
    sizes = {"vocab_size": 300, "decoder_embed_dim": 50, "decoder_hidden_size": 4}
    flat = build_model("lstm_lm", **sizes).embed.weight.detach()
    bell = build_model("lstm_lm", embed_init="normal", **sizes).embed.weight.detach()
    assert flat.abs().max() <= 0.1 and flat.std() == pytest.approx(0.2 / 12**0.5, rel=0.05)
    assert bell.std() == pytest.approx(1, rel=0.05) and bell.abs().max() > 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"arch": "plstm_ml"}, "unknown architecture 'plstm_ml'; did you mean .*plstm_lm"),
        (
            {"decoder_hiden_size": 8},
            "unknown setting 'decoder_hiden_size'; did you mean decoder_hidden",
        ),
        ({"read_at": "last"}, "unknown setting 'read_at'"),
        ({"emsize": 8, "decoder_embed_dim": 8}, "decoder_embed_dim.*accepted: one of them"),
        ({"vocab_size": None}, "vocab_size was not given|neither vocab_size nor input_size"),
        ({"vocab_size": 0}, "vocab_size = 0; accepted: an integer of at least 1"),
        ({"arch": "plstm_tagger"}, "num_classes was not given; a tagger needs it"),
        ({"decoder_layers": 0}, "decoder_layers = 0; accepted"),
        ({"decoder_hidden_size": (8, 0)}, "decoder_hidden_size = 0; accepted"),
        (
            {"decoder_hidden_size": (8, 8), "decoder_layers": 3},
            "has 2 numbers; accepted: one, or .* 3",
        ),
        ({"decoder_embed_dim": -1}, "decoder_embed_dim = -1; accepted"),
        ({"dropouth": 1.0}, "dropouth = 1.0; accepted: 0 <= dropouth < 1"),
        ({"cell": "plst"}, "unknown cell 'plst'; did you mean plstm"),
        ({"cell": "lstm", "eps": 1e-3}, "unknown option of cell 'lstm' 'eps'"),
        ({"p_range": "0.5"}, "p_range = '0.5'; accepted: two numbers, LOW/HIGH"),
        ({"p_range": "0.5/0.2"}, r"start of p = \(0.5, 0.2\); accepted"),
        ({"cell": "lstm", "p_range": "0/0.5"}, "p of cell 'lstm' is not learned"),
        ({"cell_options": "eps"}, "cell_options has 'eps'; accepted: key=value"),
        ({"cell_options": "eps=small"}, "cell_options has the value 'small'; accepted: a number"),
        ({"cell_options": "eps=1e-4", "eps": 1e-3}, "eps = 0.001 and cell_options"),
        ({"cell_options": "eps=1e-4:eps=1e-3"}, "cell_options has eps twice; accepted: each key"),
        ({"init": "chronos"}, "unknown initialiser 'chronos'; did you mean chrono"),
        (
            {"cell": "nru", "init": "chrono:t_max=300"},
            "initialiser 'chrono' sets gate 'f', which cell 'nru' lacks",
        ),
        (
            {"init": "default,default"},
            "init = 'default,default' has 2 layers; accepted: one, or .* 1",
        ),
        ({"t_max": 300.0}, "t_max = 300.0, but init = 'default' takes none"),
        ({"backend": "fast"}, "backend = 'fast'; accepted: auto, reference, fused"),
        ({"input_size": 3, "decoder_embed_dim": 8}, "decoder_embed_dim = 8 with input_size"),
        ({"decoder_embed_dim": 0, "freeze_embed": True}, "one-hot symbols have no table to freeze"),
        ({"decoder_embed_dim": 0, "embed_init": "normal"}, "embed_init = 'normal' with .* = 0"),
        ({"embed_init": "odd"}, "embed_init is 'odd'; accepted: uniform, normal"),
        ({"pretrained": torch.zeros(V, 3)}, r"pretrained is .* \(11, 3\); accepted: .*\[11, 128\]"),
        (
            {"decoder_embed_dim": 0, "share_decoder_input_output_embed": True},
            "share_decoder_input_output_embed with decoder_embed_dim = 0",
        ),
        (
            {"decoder_hidden_size": (8, 9), "share_decoder_input_output_embed": True},
            "decoder_hidden_size ends with 9; accepted .* decoder_embed_dim = 128",
        ),
    ],
)
def test_errors_name_the_setting_and_what_is_accepted(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(**{"arch": "plstm_lm", "vocab_size": V, **arguments})


def test_a_classifier_says_where_it_may_read() -> None:
    with pytest.raises(ValueError, match="read_at = 'first'; accepted: last, end"):
        build_model("lstm_classifier", vocab_size=V, num_classes=C, read_at="first")


@pytest.mark.parametrize(
    "call, message",
    [
        ({"x": torch.zeros(B, T)}, r"x is torch.float32 \(3, 7\); accepted: tokens"),
        ({"x": torch.zeros(T, dtype=torch.int64)}, r"x is torch.int64 \(7,\); accepted: tokens"),
        ({"x": torch.full((B, T), V)}, "x has token 11; accepted: 0 to 10"),
        ({"x": torch.full((B, T), -1)}, "x has token -1; accepted: 0 to 10"),
        ({"state": []}, "state has 0 layers; accepted: None or 1 dicts"),
        ({"dt": torch.ones(B, T)}, "dt was given, but cell 'lstm' takes none"),
        ({"lengths": [T + 1, 1, 1]}, "lengths has 8; accepted: 0 to T = 7"),
    ],
)
@pytest.mark.parametrize("embed", [0, 5])
def test_calls_with_bad_input(call: dict[str, Any], message: str, embed: int) -> None:
    model = build_model("lstm_lm", vocab_size=V, decoder_embed_dim=embed, **SMALL)
    with pytest.raises(ValueError, match=message):
        model(**{"x": torch.zeros(B, T, dtype=torch.int64), **call})


def test_a_config_must_be_one_of_a_model() -> None:
    with pytest.raises(ValueError, match="config has no 'arch'"):
        build_from_config({"vocab_size": V})
    config = build_model("lstm_lm", vocab_size=V).config
    with pytest.raises(ValueError, match="unknown setting 'dropuot'; did you mean dropout"):
        build_from_config({**config, "dropuot": 0.1})


def test_registering_a_family_needs_a_config() -> None:
    with pytest.raises(ValueError, match="model 'bare': Config must be a dataclass"):
        register_model("bare")(type("Bare", (), {}))
    with pytest.raises(ValueError, match="unknown model 'lmm'; did you mean lm"):
        register_model_architecture("lmm", "any")
