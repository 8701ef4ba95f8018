"""Architectures by name: every kind of recurrence in every family, and the papers' presets.

    <kind>_<family>            plstm_lm, chrono_lstm_classifier, mts_lstm_tagger, ...
    <kind>_<family>_<data>     plstm_lm_ptb_char, awd_lstm_lm_wt2, fast_lstm_classifier_psmnist, ...

A kind is a cell with its initialiser. FG = Ohno et al. 2022 (forget gates start at sigmoid(1)),
MTS = Mahto et al. 2021, PL = Chien et al. 2021 (both with the default initialisation).
In the word models the recurrent weights are trained, with weight drop. For MTS tables 1, 2 and FG table 3 they
were not trained: add `freeze_recurrent` to reproduce those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .models.build import (
    build_model,
    config_class,
    get_architecture,
    list_architectures,
    register_model_architecture,
)

__all__ = [
    "build_model",
    "config_class",
    "get_architecture",
    "list_architectures",
    "register_model_architecture",
]

Settings = dict[str, Any]

FAMILIES: dict[str, Settings] = {
    "lm": {"decoder_embed_dim": 128, "decoder_hidden_size": 256},
    "classifier": {"decoder_embed_dim": 128, "decoder_hidden_size": 128},
    "tagger": {"decoder_embed_dim": 0, "decoder_hidden_size": 128},
}

# Merity et al. 2018, for Penn Treebank; WikiText-2 differs in two dropout rates.
AWD: Settings = {
    "decoder_embed_dim": 400,
    "decoder_hidden_size": 1150,
    "decoder_layers": 3,
    "dropout": 0.4,
    "dropouth": 0.25,
    "dropouti": 0.4,
    "dropoute": 0.1,
    "wdrop": 0.5,
}
TIED: Settings = {"share_decoder_input_output_embed": True}
AWD_PTB: Settings = {**AWD, **TIED}
AWD_WT2: Settings = {**AWD_PTB, "dropouth": 0.2, "dropouti": 0.65}

KINDS: dict[str, Settings] = {
    "lstm": {"cell": "lstm"},
    "chrono_lstm": {"cell": "lstm", "init": "chrono"},
    "fast_lstm": {"cell": "lstm_fast", "init": "forget_one"},
    "softsign_lstm": {"cell": "lstm_softsign", "init": "forget_one"},
    "refine_lstm": {"cell": "lstm_refine_tied", "init": "forget_one"},
    "ur_lstm": {"cell": "lstm_refine_tied", "init": "uniform_gate"},
    "decay_lstm": {"cell": "lstm_decay"},
    "slstm": {"cell": "slstm"},
    "plstm": {"cell": "plstm"},
    "fast_plstm": {"cell": "plstm_fast"},
    "gru": {"cell": "gru"},
    "min_gru": {"cell": "min_gru"},
    "janet": {"cell": "janet", "init": "chrono"},
    "nru": {"cell": "nru"},
    "mts_lstm": {"cell": "lstm", "init": "multi_timescale"},
    "awd_lstm": {"cell": "lstm", **AWD},
}

# Settings of a kind that apply to one family only.
SPECIAL: dict[str, Settings] = {"awd_lstm_lm": TIED, "mts_lstm_lm": {"decoder_layers": 3}}

# chrono's default t_max, the longest dependency: the segment length of PL's character models, the number of
# pixels of an image, and 3/2 of the shortest copy length.
T_MAX = {"lm": 150, "classifier": 784, "tagger": 300}

# MTS: alpha of the timescales' inverse gamma distribution, for words and for Dyck-2.
MTS_ALPHA = {"lm": 0.56, "classifier": 1.5, "tagger": 1.5}

ONE_HOT: Settings = {"decoder_embed_dim": 0}
IMDB: Settings = {"decoder_embed_dim": 100, "freeze_embed": True, "dropout": 0.2}
FORGET_ONE: Settings = {"init": "forget_one"}

PRESETS: dict[str, Settings] = {
    # PL table 2 and section 4.4: models with about the same number of parameters
    "lstm_lm_ptb_char": {**ONE_HOT, "decoder_hidden_size": 716},
    "plstm_lm_ptb_char": {**ONE_HOT, "decoder_hidden_size": 828},
    "lstm_lm_text8": {**ONE_HOT, "decoder_hidden_size": 512, "decoder_layers": 2},
    "plstm_lm_text8": {**ONE_HOT, "decoder_hidden_size": 592, "decoder_layers": 2},
    "lstm_classifier_imdb": {**IMDB, "decoder_hidden_size": 128},
    "chrono_lstm_classifier_imdb": {**IMDB, "decoder_hidden_size": 128, "init": "chrono:t_max=400"},
    "plstm_classifier_imdb": {**IMDB, "decoder_hidden_size": 154},
    # PL section 5.4. chrono's t_max is not published; this is the longest duration.
    "lstm_classifier_frequency": {"decoder_hidden_size": 110},
    "chrono_lstm_classifier_frequency": {"decoder_hidden_size": 110, "init": "chrono:t_max=125"},
    "plstm_classifier_frequency": {"decoder_hidden_size": 110, "eps": 1e-5},
    # MTS tables 1 to 3, FG table 3
    "awd_lstm_lm_ptb": AWD_PTB,
    "awd_lstm_lm_wt2": AWD_WT2,
    "mts_lstm_lm_ptb": AWD_PTB,
    "mts_lstm_lm_wt2": AWD_WT2,
    "lstm_lm_ptb": {**AWD_PTB, **FORGET_ONE},
    "fast_lstm_lm_ptb": AWD_PTB,
    "refine_lstm_lm_ptb": AWD_PTB,
    # not in the papers; as many parameters as awd_lstm_lm_ptb
    "plstm_lm_ptb": {**AWD_PTB, "decoder_hidden_size": 1352},
    # MTS section 3.1.2
    "lstm_tagger_dyck2": {**ONE_HOT, "decoder_hidden_size": 256},
    "mts_lstm_tagger_dyck2": {**ONE_HOT, "decoder_hidden_size": 256},
}

# PL table 1 and FG table 2. FG ties the input gate of the refine cell only in language models. chrono's t_max
# is the number of pixels.
PIXELS = {"smnist": 784, "psmnist": 784, "scifar": 1024}
IMAGES: dict[str, Settings] = {
    "lstm_classifier_{}": {},
    "plstm_classifier_{}": {},
    "lstm_classifier_{}_fg": FORGET_ONE,
    "softsign_lstm_classifier_{}": {},
    "refine_lstm_classifier_{}": {"cell": "lstm_refine"},
    "fast_lstm_classifier_{}": {},
    "chrono_lstm_classifier_{}": {"init": "chrono:t_max={}"},
    "janet_classifier_{}": {"init": "chrono:t_max={}"},
    "nru_classifier_{}": {"cell_options": "memory_size=144:heads=4"},
}


def defaults(kind: str, family: str, own: Settings, chosen: Mapping[str, Any]) -> Settings:
    """The settings of family, kind and preset, in increasing precedence. Completes initialisers that depend on
    the family."""
    values = {**FAMILIES[family], **KINDS[kind], **own}
    if values.get("init") == "chrono":
        values["init"] = f"chrono:t_max={T_MAX[family]}"
    elif values.get("init") == "multi_timescale":
        layers = chosen.get("decoder_layers", values.get("decoder_layers", 1))
        values["init"] = timescale_layers(layers, MTS_ALPHA[family])
    return values


def timescale_layers(layers: int, alpha: float) -> str:
    """Assigns timescales as in MTS: short ones in the first layer, spread ones in the next layers, and none in
    the last layer.

    The paper has three layers. With two layers, both get timescales; a single layer gets the spread ones.
    """
    spread = f"multi_timescale:alpha={alpha}"
    if layers == 1:
        return spread
    last = spread if layers == 2 else "default"
    return ",".join(["multi_timescale:timescales=3/4", *[spread] * (layers - 2), last])


def _register(name: str, kind: str, family: str, own: Settings) -> None:
    @register_model_architecture(family, name)
    def preset(chosen: Mapping[str, Any]) -> Settings:
        return defaults(kind, family, own, chosen)


def _register_all() -> None:
    for family in FAMILIES:
        for kind in KINDS:
            name = f"{kind}_{family}"
            _register(name, kind, family, SPECIAL.get(name, {}))
    images = {
        name.format(image): {
            **{key: value.format(pixels) for key, value in own.items()},
            "decoder_hidden_size": 512,
        }
        for image, pixels in PIXELS.items()
        for name, own in IMAGES.items()
    }
    for name, own in {**PRESETS, **images}.items():
        kind, family = next((k, f) for k in KINDS for f in FAMILIES if name.startswith(f"{k}_{f}_"))
        _register(name, kind, family, own)


_register_all()
