"""Models with one output vector per step: taggers (copy, adding, Dyck-2), and the base of language models."""

from __future__ import annotations

from ..layers.dropout import locked_dropout
from .build import register_model
from .sequence_model import Features, SequenceModel, needed
from .settings import Sizes


class StepwiseModel(SequenceModel):
    """logits [B,T,C], logits_t = W dropout(y_t) + b"""

    def features(self, x, lengths=None, state=None, dt=None) -> Features:
        raw, state = self.stack(x, lengths, state, dt)
        return Features(raw, locked_dropout(raw, self.settings.dropout, self.training), state)


@register_model("tagger")
class Tagger(StepwiseModel):
    """logits [B,T,C]: `num_classes` numbers per step."""

    @classmethod
    def output_size(cls, sizes: Sizes) -> int:
        return needed(sizes, "num_classes", "tagger")
