"""Classifiers: one output vector a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import setting
from .base import register_model
from .dropout import locked_dropout
from .sequence_model import Features, SequenceModel, needed
from .settings import ModelConfig, Sizes

READ_AT = ("last", "end")


@dataclass(frozen=True)
class ClassifierConfig(ModelConfig):
    """model (classifier)"""

    read_at: str = setting(
        "last",
        "read the last step that counts (last), or step T through the padding (end)",
        choices=READ_AT,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.read_at not in READ_AT:
            raise ValueError(f"read_at = {self.read_at!r}; accepted: {', '.join(READ_AT)}")


@register_model("classifier")
class Classifier(SequenceModel):
    """logits [B,C] = W dropout(h) + b, h the last layer's at the last valid step.

    That h is the layer's state, so a row of length 0 is read where an earlier chunk ended.
    """

    Config = ClassifierConfig
    settings: ClassifierConfig

    @classmethod
    def output_size(cls, sizes: Sizes) -> int:
        return needed(sizes, "num_classes", "classifier")

    def features(self, x, lengths=None, state=None, dt=None) -> Features:
        if self.settings.read_at == "end":
            lengths = None
        raw, state = self.stack(x, lengths, state, dt)
        h = state[-1]["h"].to(raw.dtype)
        dropped = locked_dropout(h[:, None], self.settings.dropout, self.training)[:, 0]
        return Features(raw, dropped, state)
