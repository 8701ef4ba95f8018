"""Experiments without data or without complete training: FG's toy problem, and the time of an epoch."""

from __future__ import annotations

from typing import Any

from ..claims import register_claim
from ..limits import Between
from ..recipe import Experiment, Metric, Variant, Worth, register
from .words import AWD

register(
    Experiment(
        "toy",
        "The toy long-time-scale problem",
        "FG figure 2, table 1",
        "L = |f^10 - 1|, gradient descent with learning rate 1 and gradient flow, 100,000 updates; "
        "the slope of log(1 - f) over log(updates) from 10,000 on.",
        tuple(
            Variant("toy", gate, gate, program="toy", updates=100_000, published={"slope": theory})
            for gate, theory in (
                ("softsign", "-1/3"),
                ("sigmoid", "-1"),
                ("refine", "-1"),
                ("fast", "steeper than -1"),
            )
        ),
        (
            Metric("slope", "slope, descent", 1, 3),
            Metric("flow_slope", "slope, flow", 1, 3),
            Metric("log10_rest", "log10 (1 - f) at the end", 1, 2),
        ),
        figures=("toy",),
        smoke={"steps": 300},
    )
)

MINUTES = {
    "softsign_lstm": 17.7,
    "sigmoid": 14.3,
    "refine_lstm": 22.7,
    "fast_lstm": 14.7,
    "chrono_lstm": 14.3,
    "janet": 10.6,
    "nru": 35.0,
}
SECONDS = {"sigmoid": 130.0, "refine": 185.0, "fast": 138.0}
ARCHS = {"sigmoid": "lstm", "refine": "refine_lstm", "fast": "fast_lstm"}
UPDATES = 120


def timed(name: str, arch: str, task: str, data: str, value: float, **more: Any) -> Variant:
    return Variant(
        "timing",
        name,
        name.replace("_", " "),
        arch,
        task,
        data,
        updates=UPDATES,
        measures=("pace",),
        alone=True,
        published={"seconds_an_epoch": value},
        **more,
    )


register(
    Experiment(
        "timing",
        "Training time",
        "FG tables 2 and 3",
        f"Seconds per epoch, from the pace of {UPDATES} updates without the first 20, on psMNIST with 512 "
        "units and batch 100, and on Penn Treebank words with the recipe of `ptb-word`. Five repeats, each "
        "with all rows in turn.",
        tuple(
            timed(
                f"psmnist-{kind}",
                "lstm_classifier_psmnist_fg" if kind == "sigmoid" else f"{kind}_classifier_psmnist",
                "psmnist",
                "mnist",
                60 * minutes,
                settings={"batch_size": 100, "lr": 1e-3, "clip_norm": 1.0, "log_interval": 20},
            )
            for kind, minutes in MINUTES.items()
        )
        + tuple(
            timed(
                f"ptb-{kind}",
                f"{ARCHS[kind]}_lm_ptb",
                "language_modeling",
                "ptb",
                seconds,
                optimizer="nt_asgd",
                settings={**AWD, "batch_size": 20, "freeze_recurrent": True, "log_interval": 20},
            )
            for kind, seconds in SECONDS.items()
        ),
        (Metric("seconds_an_epoch", "seconds an epoch", 1, 1),),
        seeds=5,
        worth={"*": Worth(7, 0.6)},
        smoke={
            "decoder_hidden_size": 8,
            "batch_size": 4,
            "tokens_per_sample": 10,
            "valid_batch_size": 2,
            "log_interval": 1,
        },
        notes=(
            "The published times are from other hardware, so only their ratios can be compared.",
            "The run of `psmnist-nru` is older than the compiled kernel of nru, so it says nothing about it.",
        ),
    )
)

register_claim(
    "The order of saturation decides how fast a gate opens (toy problem)",
    "FG figure 2",
    Between("toy", "softsign", low=-0.5, seeds=1),
    Between("toy", "sigmoid", low=-1.05, high=-0.95, seeds=1),
    Between("toy", "fast", high=-1.1, seeds=1),
)
