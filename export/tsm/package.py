"""A model as one `.tsm` file: config, weights, and the dictionary. FORMAT.md has every byte.

    package(model, "model.tsm")                                # float32
    package(open_trained("checkpoint_best.pt"), "model.tsm", dtype="int8")

The file is written under a temporary name and renamed, so that a reader sees either the old or the new file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tsm import __version__

from ...plugin.cells.tape.program import program, program_hash
from ...plugin.common.atomic import write_bytes
from ...plugin.data.labels import COLUMNS, LABELS, TARGETS, load_labels
from ...plugin.data.ranges import RANGES, Ranges
from ...plugin.data.reading import READING, Reading
from ...plugin.data.roles import ROLES, load_roles
from ...plugin.data.subword import MODEL as SENTENCEPIECE
from ...plugin.data.tokenizers import TOKENIZERS
from ...plugin.data.vocab import DICT, Vocab
from ...plugin.extras import how_to_install
from ...plugin.layers import Recurrent
from ...plugin.models import SequenceModel
from ...plugin.trained import Trained
from ..common.tsm_header import with_metadata

FORMAT = 2
FAMILIES = ("lm", "classifier", "tagger")
DTYPES = ("float32", "bfloat16", "int8")
ASSETS = {
    DICT: "text.dict",
    SENTENCEPIECE: "text.sentencepiece",
    LABELS: "text.labels",
    TARGETS: "text.targets",
    COLUMNS: "text.columns",
    READING: "text.reading",
    RANGES: "text.ranges",
    ROLES: "text.roles",
}
"""Files that are stored in a model, and the tensors that hold them."""
_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int8: "I8", torch.uint8: "U8"}


@dataclass(frozen=True)
class Packaged:
    """What was written. rounding: matrix -> RMS error relative to its RMS."""

    path: Path
    dtype: str
    bytes: int
    fingerprint: str
    rounding: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        worst = max(self.rounding.values(), default=0.0)
        rounded = f", rounding error up to {worst:.2%} of a matrix" if worst else ""
        return f"{self.path}: {self.dtype}, {self.bytes:,} bytes{rounded}"


def package(
    source: SequenceModel | Trained,
    path: str | Path,
    dtype: str = "float32",
    *,
    assets: Mapping[str, bytes] | None = None,
    tokenizer: str | None = None,
) -> Packaged:
    """Write a `.tsm` file. dtype: of the matrices; everything else is float32.

    assets, tokenizer: only for a bare model; a trained one has its own. assets: dict.txt or sentencepiece.model
    if it reads text, and labels.txt, the names of its outputs. tokenizer: its kind.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype = {dtype!r}; accepted: {', '.join(DTYPES)}")
    if isinstance(source, Trained):
        if assets is not None or tokenizer is not None:
            raise ValueError("assets and tokenizer are given; accepted: with a bare model only")
        model, assets = source.model, source.assets
        tokenizer = source.config["text"].get("tokenizer")
    else:
        model = source
    _check(model)
    texts = _assets(model, assets or {}, tokenizer)
    tensors: dict[str, Tensor] = {}
    rounding: dict[str, float] = {}
    for name, value in model_tensors(model).items():
        value = value.detach().to("cpu", torch.float32).contiguous()
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} has a number that is not finite; it cannot be exported")
        if value.dim() == 2:
            error = _add_matrix(tensors, name, value, dtype)
            rounding |= {} if error is None else {name: error}
        else:
            tensors[name] = value
    for name, data in texts.items():
        tensors[name] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    config = model_config(model, tokenizer)
    config["fingerprint"] = fingerprint(config, tensors)
    data = _file(config, tensors)
    path = Path(path)
    write_bytes(path, data)
    return Packaged(path, dtype, len(data), config["fingerprint"], rounding)


def model_config(model: SequenceModel, tokenizer: str | None = None) -> dict[str, Any]:
    """The file's config, without the fingerprint."""
    embed, first = model.embed, model.layers[0]
    if embed is None:
        reads: dict[str, Any] = {"kind": "values", "width": first.input_size}
    elif embed.one_hot:
        reads = {"kind": "one_hot", "vocab_size": embed.vocab_size}
    else:
        reads = {"kind": "tokens", "vocab_size": embed.vocab_size, "width": embed.width}
    return {
        "format": FORMAT,
        "tsm_version": __version__,
        "family": model.name,
        "arch": str(model.config.get("arch", "")),
        "input": reads,
        "layers": [_layer(layer) for layer in model.layers],
        "output": {"size": model.decoder.out_features, "tied": _tied(model)},
        "text": None if tokenizer is None else {"tokenizer": tokenizer},
    }


def fingerprint(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """16 hex digits of a SHA-256 over the config without the fingerprint, and every tensor by name."""
    own = {key: value for key, value in config.items() if key != "fingerprint"}
    digest = hashlib.sha256(_json(own).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        shape = ",".join(map(str, tensor.shape))
        digest.update(f"\n{name}\n{_NAMES[tensor.dtype]}\n{shape}\n".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()[:16]


def quantize(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (int8 [rows, columns], scale [rows]): scale = largest magnitude / 127; the integers are rounded
    to nearest even."""
    scale = matrix.abs().amax(dim=1) / 127
    divisor = torch.where(scale > 0, scale, torch.inf)
    return (matrix / divisor[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def _layer(layer: Recurrent) -> dict[str, Any]:
    cell, options = layer.cell, layer.options
    elementwise = cell.elementwise
    return {
        "cell": cell.name,
        "input_size": layer.input_size,
        "hidden_size": layer.hidden_size,
        "gates": list(cell.gates),
        **({} if cell.gates_of("h") else {"recurrent": False}),
        "states": [{"name": s, "width": layer.widths[s]} for s in cell.states],
        "vectors": list(cell.vectors),
        "constants": {name: float(options[name]) for name in cell.constants},
        "takes_dt": cell.takes_dt,
        "shortest_dt": float(cell.shortest_dt(options)),
        "options": {} if elementwise else {n: options[n] for n in cell.options()},
        "program": program(cell),
        **({"program_hash": f"{program_hash(cell):016x}"} if elementwise else {}),
    }


def model_tensors(model: SequenceModel) -> dict[str, Tensor]:
    """Every numeric tensor by its name in the file; those with two dimensions are matrices."""
    found: dict[str, Tensor] = {}
    if model.embed is not None and not model.embed.one_hot:
        found["embedding"] = model.embed.weight
    for number, layer in enumerate(model.layers):
        own = {"weight_x": layer.matrix("weight_x"), "bias": layer.effective_bias()}
        own |= {name: layer.matrix(name) for name in layer.weights}
        own |= {f"vectors.{name}": value for name, value in layer.vectors().items()}
        found |= {f"layers.{number}.{name}": value for name, value in own.items()}
    if not _tied(model):
        found["output.weight"] = model.decoder.weight
    found["output.bias"] = model.decoder.bias
    return found


def _tied(model: SequenceModel) -> bool:
    embed = model.embed
    return embed is not None and not embed.one_hot and model.decoder.weight is embed.weight


def _add_matrix(tensors: dict[str, Tensor], name: str, value: Tensor, dtype: str) -> float | None:
    """Add a matrix, stored as `dtype`; returns the relative rounding error, if any."""
    if dtype == "float32":
        tensors[name] = value
        return None
    if dtype == "bfloat16":
        tensors[name] = value.to(torch.bfloat16)
        rounded = tensors[name].float()
    else:
        tensors[name], tensors[f"{name}.scale"] = quantize(value)
        rounded = tensors[name].float() * tensors[f"{name}.scale"][:, None]
    size = float(value.square().mean().sqrt())
    return float((rounded - value).square().mean().sqrt()) / size if size else 0.0


def _check(model: SequenceModel) -> None:
    if not isinstance(model, SequenceModel):
        raise ValueError(
            f"model is a {type(model).__name__}; accepted: a tsm model, or a trained one (open_trained)"
        )
    if model.name not in FAMILIES:
        raise ValueError(f"the model's family is {model.name!r}; accepted: {', '.join(FAMILIES)}")
    for number, layer in enumerate(model.layers):
        if not layer.cell.elementwise and layer.cell.name != "nru":
            raise ValueError(
                f"layers[{number}] has the cell {layer.cell.name!r}, which has no program; "
                "accepted: element-wise cells and nru"
            )


def _assets(
    model: SequenceModel, assets: Mapping[str, bytes], tokenizer: str | None
) -> dict[str, bytes]:
    """Tensor name -> bytes of the files for text, which are checked."""
    for name in assets:
        if name not in ASSETS:
            raise ValueError(f"assets has {name!r}; accepted: {', '.join(ASSETS)}")
    if assets.keys() & {DICT, SENTENCEPIECE} and tokenizer is None:
        raise ValueError("assets were given without tokenizer; accepted: both, or neither")
    for name in assets.keys() & {LABELS, TARGETS}:
        load_labels(assets[name], name, model.decoder.out_features)
    if COLUMNS in assets:
        load_labels(assets[COLUMNS], COLUMNS, model.layers[0].input_size)
    if READING in assets:
        Reading.parse(assets[READING], READING)
    if RANGES in assets:
        Ranges.parse(assets[RANGES], RANGES, model.layers[0].input_size)
    if ROLES in assets:
        load_roles(assets[ROLES], ROLES)
    if tokenizer is not None and tokenizer not in (*TOKENIZERS, "sentencepiece"):
        raise ValueError(
            f"tokenizer = {tokenizer!r}; accepted: {', '.join(TOKENIZERS)}, sentencepiece"
        )
    if DICT in assets and model.embed is not None:
        symbols = len(Vocab.loads(assets[DICT], DICT).symbols)
        # A classifier's vocabulary has one more id, for the padding.
        if symbols > model.embed.vocab_size:
            raise ValueError(
                f"{DICT} has {symbols} symbols; accepted: the model's {model.embed.vocab_size}"
            )
    return {ASSETS[name]: bytes(data) for name, data in assets.items()}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _file(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    try:
        from safetensors.torch import save
    except ImportError as error:
        needs = how_to_install("export")
        raise ModuleNotFoundError(
            f"safetensors is not installed; run: {needs}", name="safetensors"
        ) from error
    return bytes(with_metadata(save(dict(tensors)), {"tsm": _json(config)}))
