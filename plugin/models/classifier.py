"""Classifiers: one output vector per sequence."""

from __future__ import annotations

from ..layers.dropout import locked_dropout
from .build import register_model
from .sequence_model import Features, SequenceModel, needed
from .settings import ClassifierConfig, Sizes


@register_model("classifier")
class Classifier(SequenceModel):
    """logits [B,C] = W dropout(h) + b, where h is the last layer's h at the last valid step.

    This h is the layer's state, so a row of length 0 uses the h at the end of the previous chunk.
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
