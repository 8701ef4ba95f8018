"""Sentiment of film reviews: PL section 4.4 and figure 4."""

from __future__ import annotations

from .recipe import Experiment, Metric, Variant, register

PUBLISHED = {"lstm": 86.8, "chrono_lstm": 87.0, "plstm": 88.1}
READINGS = {"last": "the last word", "fixed": "step 400"}
CLIPPING = {"clip": 1.0, "noclip": 0.0}


def review_variant(kind: str, reading: str, clipping: str) -> Variant:
    return Variant(
        "imdb",
        f"{kind}-{reading}-{clipping}",
        f"{kind.replace('_', ' ')}, read at {READINGS[reading]}, "
        + ("clipped at 1" if CLIPPING[clipping] else "no clipping"),
        f"{kind}_classifier_imdb",
        "classification",
        data="imdb",
        settings={
            "batch_size": 128,
            "max_length": 400,
            "fixed_length": reading == "fixed",
            "lr": 5e-4 if kind == "plstm" else 1e-3,
            "clip_norm": CLIPPING[clipping],
        },
        epochs=20,
        measures=("test", "by_length"),
        published={"test_accuracy": PUBLISHED[kind] / 100},
    )


register(
    Experiment(
        "imdb",
        "IMDB reviews",
        "PL 4.4, figure 4",
        "Frozen 100-dimensional GloVe vectors of 25,000 words, first 400 words, 128 units (lstm, "
        "chrono) or 154 (plstm), dropout .2 on the output, Adam 1e-3 (plstm 5e-4), 20 epochs, test at "
        "the epoch with the lowest validation loss; batch 128 was chosen here.",
        tuple(
            review_variant(kind, reading, clipping)
            for clipping in CLIPPING
            for reading in READINGS
            for kind in PUBLISHED
        ),
        (Metric("test_accuracy", "test accuracy, %", 100, 2),),
        seeds=3,
        pairs=tuple(
            (f"plstm-{reading}-{clipping}", f"{other}-{reading}-{clipping}")
            for clipping in CLIPPING
            for reading in READINGS
            for other in ("lstm", "chrono_lstm")
        ),
        figure="by_length",
        smoke={"decoder_hidden_size": 8, "batch_size": 8, "max_length": 12},
        notes=(
            "The paper pads to 400 words; whether it reads the last word or step 400 through the "
            "padding, and whether it clips gradients, it does not say: all four are measured beside "
            "its numbers.",
            "The published order is plstm, chrono, lstm. With the gradient clipped, three seeds: read "
            "at step 400 plstm is as far ahead of lstm as published, and both have the published "
            "accuracy, but chrono is ahead of both; read at the last word the three are too close "
            "for three seeds.",
        ),
    )
)
