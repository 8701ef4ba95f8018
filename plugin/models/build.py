"""Models and architectures by name, and functions to build them.

A *model* is a class (`register_model`), which defines a family of models. An *architecture* is a family with a
preset: a function from the chosen settings to values for the other settings.

    @register_model_architecture("lm", "wide_plstm_lm")
    def wide_plstm_lm(chosen):
        return {"cell": "plstm", "decoder_hidden_size": 2048}

    model = build_model("wide_plstm_lm", vocab_size=50, decoder_layers=2)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..config import build
from ..registry import Registry, unknown
from .settings import ClassifierConfig, LanguageModelConfig, ModelConfig, Sizes

if TYPE_CHECKING:
    from torch import Tensor

    from .sequence_model import SequenceModel

M = TypeVar("M", bound=type)
Preset = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Architecture:
    """A named preset of a family: `preset` maps chosen settings and sizes to defaults."""

    name: str
    model: str
    preset: Preset


MODELS: Registry[type[SequenceModel]] = Registry("model")
ARCHITECTURES: Registry[Architecture] = Registry("architecture")

# The built-in families. Their settings are known without loading their modules, which need torch.
CONFIGS: dict[str, type] = {
    "lm": LanguageModelConfig,
    "classifier": ClassifierConfig,
    "tagger": ModelConfig,
}
for _name, _module in {
    "lm": "language_model",
    "classifier": "classifier",
    "tagger": "stepwise",
}.items():
    MODELS.promise(_name, f"{__package__}.{_module}")


def register_model(name: str) -> Callable[[M], M]:
    """Class decorator: registers a family as `name`; its constructor takes (Config, Sizes, pretrained)."""

    def enter(cls: M) -> M:
        if not dataclasses.is_dataclass(getattr(cls, "Config", None)):
            raise ValueError(f"model {name!r}: Config must be a dataclass")
        MODELS.register(name)(cls)
        cls.name = name  # type: ignore[attr-defined]
        return cls

    return enter


def register_model_architecture(model_name: str, arch_name: str) -> Callable[[Preset], Preset]:
    """Decorator of a preset: registers the architecture `arch_name` of the family `model_name`."""
    MODELS.check(model_name)

    def enter(preset: Preset) -> Preset:
        ARCHITECTURES.register(arch_name)(Architecture(arch_name, model_name, preset))
        return preset

    return enter


def list_architectures(model: str | None = None) -> list[str]:
    """All names, or those of one family; model: "lm", "classifier" or "tagger"."""
    if model is not None:
        MODELS.check(model)
    return [n for n in ARCHITECTURES if model in (None, ARCHITECTURES.get(n).model)]


def get_architecture(name: str) -> Architecture:
    if name not in ARCHITECTURES and (fitting := _of_cell(name)):
        raise ValueError(f"unknown architecture {name!r}; with that cell: {', '.join(fitting)}")
    return ARCHITECTURES.get(name)


def _of_cell(name: str) -> list[str]:
    """Architectures (without the papers' presets) for a name such as `lstm_decay` (a cell) or
    `lstm_decay_tagger`."""
    found = []
    for arch in map(ARCHITECTURES.get, ARCHITECTURES):
        cell = arch.preset({}).get("cell")
        if arch.name.endswith(f"_{arch.model}") and name in (cell, f"{cell}_{arch.model}"):
            found.append(arch.name)
    return [arch for arch in found if arch.startswith(name)] or found


def config_class(arch: str) -> type:
    """The dataclass of an architecture's settings, from which a command makes its flags."""
    return family_config(get_architecture(arch).model)


def family_config(model: str) -> type:
    """The dataclass of a family's settings."""
    return CONFIGS[model] if model in CONFIGS else MODELS.get(model).Config


def resolve(arch: str, chosen: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """The settings of a model: those chosen by the caller or the preset, and defaults of the dataclass for the
    others."""
    config = config_class(arch)
    chosen = _canonical(config, chosen)
    widths = chosen.get("decoder_hidden_size")
    if isinstance(widths, (tuple, list)) and len(widths) > 1:  # they imply the number of layers
        chosen.setdefault("decoder_layers", len(widths))
    values = dict(get_architecture(arch).preset({**chosen, **vars(sizes)}))
    if sizes.input_size is not None:  # float inputs: ignore the preset's token settings
        values.update(decoder_embed_dim=0, dropoute=0.0)
    if not {**values, **chosen}.get("decoder_embed_dim", 1):
        values.update(_without_table(config))
    return {**values, **chosen}


def build_model(
    arch: str,
    vocab_size: int | None = None,
    num_classes: int | None = None,
    input_size: int | None = None,
    pretrained: Tensor | None = None,
    **overrides: Any,
) -> SequenceModel:
    """Builds a model of the architecture `arch`. `overrides` are settings, spelled like the flags.

    vocab_size: number of different tokens in x (and in the output of an lm). num_classes: outputs of a
    classifier or tagger. input_size: x is float [B,T,I] instead of tokens. pretrained: embeddings [V,E], which
    are not trained unless freeze_embed=False.
    """
    sizes = Sizes(vocab_size, num_classes, input_size)
    if pretrained is not None:
        overrides.setdefault("freeze_embed", True)
    values = resolve(arch, overrides, sizes)
    return _build(arch, get_architecture(arch).model, values, sizes, pretrained)


def build_from_config(config: Mapping[str, Any]) -> SequenceModel:
    """A model with new weights from `config` (a `model.config`).

    The preset is not used again, so a checkpoint stays valid when an architecture changes.
    """
    values = dict(config)
    for name in ("arch", "model"):
        if name not in values:
            raise ValueError(f"config has no {name!r}; accepted: a complete model.config")
    arch, model = values.pop("arch"), values.pop("model")
    sizes = Sizes(*(values.pop(field.name, None) for field in dataclasses.fields(Sizes)))
    return _build(arch, model, values, sizes, None)


def _build(
    arch: str, model: str, values: Mapping[str, Any], sizes: Sizes, pretrained: Tensor | None
) -> SequenceModel:
    family = MODELS.get(model)
    settings = build(family.Config, values)
    built = family(settings, sizes, pretrained)
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(settings).items()}
    built.config = {"arch": arch, "model": model, **vars(sizes), **plain}
    return built


def _canonical(config: type, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """`chosen` with flag aliases (emsize) replaced by the names of the settings."""
    own = {field.name: field.name for field in dataclasses.fields(config)}
    names = dict(own)
    for field in dataclasses.fields(config):
        for alias in field.metadata.get("aliases", ()):
            names[alias.lstrip("-").replace("-", "_")] = field.name
    result: dict[str, Any] = {}
    for key, value in chosen.items():
        if key not in names:
            raise unknown("setting", key, list(names))
        if names[key] in result:
            raise ValueError(
                f"{key} = {value!r} was given besides {names[key]}; accepted: one of them"
            )
        result[names[key]] = value
    return result


def _without_table(config: type) -> dict[str, bool]:
    """Settings that turn off the embedding table, for one-hot tokens and float inputs."""
    tables = ("freeze_embed", "share_decoder_input_output_embed")
    known = {field.name for field in dataclasses.fields(config)}
    return {name: False for name in tables if name in known}
