"""The settings of the families, and the sizes that come from the data. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.checks import check_integer, check_rate
from ..common.device import BACKENDS
from ..config import setting
from .specs import Spec, format_options, layer_inits, parse_options, parse_range

if TYPE_CHECKING:
    from torch import Tensor

STARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform": lambda table: table.uniform_(-0.1, 0.1),
    "normal": lambda table: table.normal_(),
}
"""The initial values of an embedding table."""
EMBED_INITS = tuple(STARTS)
READ_AT = ("last", "end")
MOST_UNITS, MOST_LAYERS = 1 << 20, 256  # sizes beyond these are typing errors


@dataclass(frozen=True)
class Sizes:
    """V symbols, C outputs, I values per step. Sizes that a family does not need are None."""

    vocab_size: int | None = None
    num_classes: int | None = None
    input_size: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None:
                check_integer(name, value)


@dataclass(frozen=True)
class ModelConfig:
    """model"""

    decoder_embed_dim: int = setting(128, "width of the embedding; 0: one-hot symbols", "--emsize")
    decoder_hidden_size: tuple[int, ...] = setting(
        (256,), "units: one number for all layers, or one per layer, separated by commas", "--nhid"
    )
    decoder_layers: int = setting(1, "recurrent layers", "--nlayers")
    dropout: float = setting(0.0, "dropout rate of the last layer's output, one mask per sequence")
    dropouth: float = setting(0.0, "dropout rate between layers")
    dropouti: float = setting(0.0, "dropout rate of the first layer's input")
    dropoute: float = setting(0.0, "share of the vocabulary dropped in each update")
    wdrop: float = setting(0.0, "share of the recurrent weights (U) dropped in each update")
    freeze_embed: bool = setting(
        False, "use a given embedding table, which is neither trained nor counted"
    )
    embed_init: str = setting(
        "uniform", "initial embeddings: U(-.1, .1) or N(0, 1)", choices=EMBED_INITS
    )
    freeze_recurrent: bool = setting(False, "U keeps its initial values")
    cell: str = setting("lstm", "name of a registered cell, used in all layers")
    eps: float | None = setting(
        None, "power-law cells: eps, at most the shortest dt (None: the cell's default)"
    )
    p: float | None = setting(None, "power-law cells: a fixed exponent (None: learned per unit)")
    p_range: str = setting("", "power-law cells: initial range of learned exponents, e.g. 0/0.5")
    cell_options: str = setting("", "further options of the cell, e.g. memory_size=144:heads=4")
    init: str = setting(
        "default", "an initialiser, e.g. chrono:t_max=300, or one per layer, separated by commas"
    )
    t_max: float | None = setting(
        None, "chrono: the longest dependency in steps (None: as in init)"
    )
    backend: str = setting("auto", "implementation of the recurrence", choices=BACKENDS)

    def __post_init__(self) -> None:
        check_integer("decoder_embed_dim", self.decoder_embed_dim, 0, MOST_UNITS)
        check_integer("decoder_layers", self.decoder_layers, 1, MOST_LAYERS)
        if isinstance(self.cell_options, dict):
            object.__setattr__(self, "cell_options", format_options(self.cell_options))
        sizes = self.decoder_hidden_size
        sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
        object.__setattr__(self, "decoder_hidden_size", sizes)
        for size in sizes:
            check_integer("decoder_hidden_size", size, 1, MOST_UNITS)
        if len(sizes) not in (1, self.decoder_layers):
            raise ValueError(
                f"decoder_hidden_size = {sizes} has {len(sizes)} numbers; "
                f"accepted: one, or decoder_layers = {self.decoder_layers}"
            )
        for name in ("dropout", "dropouth", "dropouti", "dropoute", "wdrop"):
            check_rate(name, getattr(self, name))
        if self.freeze_embed and not self.decoder_embed_dim:
            raise ValueError(
                "freeze_embed with decoder_embed_dim = 0: one-hot symbols have no table to freeze"
            )
        if self.embed_init not in EMBED_INITS:
            raise ValueError(
                f"embed_init is {self.embed_init!r}; accepted: {', '.join(EMBED_INITS)}"
            )
        if self.embed_init != "uniform" and not self.decoder_embed_dim:
            raise ValueError(
                f"embed_init = {self.embed_init!r} with decoder_embed_dim = 0: there is no table"
            )
        from ..cells import get_cell

        get_cell(self.cell)
        self.cell_arguments()
        self.vector_starts()
        self.layer_inits()

    def widths(self) -> tuple[int, ...]:
        """Units of each layer."""
        sizes = self.decoder_hidden_size
        return sizes if len(sizes) == self.decoder_layers else sizes * self.decoder_layers

    def cell_arguments(self) -> dict[str, Any]:
        """The options of `Recurrent` that belong to the cell."""
        given = parse_options("cell_options", self.cell_options)
        for name in ("eps", "p"):
            value = getattr(self, name)
            if value is not None and given.setdefault(name, value) != value:
                raise ValueError(
                    f"{name} = {value!r} and cell_options = {self.cell_options!r} differ"
                )
        return given

    def vector_starts(self) -> dict[str, tuple[float, float]]:
        """Ranges of the initial values of learned vectors."""
        return {"p": parse_range("p_range", self.p_range)} if self.p_range else {}

    def layer_inits(self) -> list[Spec]:
        """(initialiser, its options) of each layer."""
        return layer_inits(self.init, self.decoder_layers, self.widths(), self.t_max)


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    """model (language model)"""

    share_decoder_input_output_embed: bool = setting(
        False,
        "tie the decoder's weight to the embedding; the last layer then has decoder_embed_dim units "
        "if decoder_hidden_size is one number",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.share_decoder_input_output_embed:
            return
        embed, last = self.decoder_embed_dim, self.widths()[-1]
        if not embed or self.freeze_embed:
            raise ValueError(
                "share_decoder_input_output_embed with "
                f"decoder_embed_dim = {embed}, freeze_embed = {self.freeze_embed}; "
                "accepted: decoder_embed_dim above 0, freeze_embed = False"
            )
        if last != embed:
            raise ValueError(
                f"decoder_hidden_size ends with {last}; accepted with "
                f"share_decoder_input_output_embed: decoder_embed_dim = {embed}"
            )

    def widths(self) -> tuple[int, ...]:
        widths = super().widths()
        if self.share_decoder_input_output_embed and len(self.decoder_hidden_size) == 1:
            return (*widths[:-1], self.decoder_embed_dim)
        return widths


@dataclass(frozen=True)
class ClassifierConfig(ModelConfig):
    """model (classifier)"""

    read_at: str = setting(
        "last",
        "read the output at the last valid step (last), or at step T after the padding (end)",
        choices=READ_AT,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.read_at not in READ_AT:
            raise ValueError(f"read_at = {self.read_at!r}; accepted: {', '.join(READ_AT)}")
