"""Images read pixel by pixel: PL table 1 and FG table 2."""

from __future__ import annotations

from typing import Any

from ..claims import register_claim
from ..comparisons import Ahead
from ..recipe import Experiment, Metric, Variant, Worth, register

ACCURACY = Metric("test_accuracy", "test accuracy, %", 100, 2)
TRAINING = {
    "batch_size": 100,
    "lr": 1e-3,
    "clip_norm": 1.0,
    "best_checkpoint_metric": "accuracy",
    "maximize_best_checkpoint_metric": True,
}
EPOCHS = 100
SMOKE = {"batch_size": 4, "decoder_hidden_size": 4}
CHOSEN = (
    "Adam 1e-3; batch 100, gradients clipped to norm 1 and 100 epochs as in the code of Chandar et al. 2019 "
    "for permuted pixels. Guessing gives 10%."
)
GATES = " 512 units, forget gates start at sigmoid(1)."
RECIPE = f"784 steps of one pixel, 50,000/10,000/10,000 images, {CHOSEN}"
NAMES = {"smnist": "Sequential MNIST", "psmnist": "Permuted sequential MNIST"}

# units -> (lstm, plstm), sMNIST and psMNIST
PL = {
    "smnist": {256: (98.7, 99.1), 512: (98.6, 99.1)},
    "psmnist": {256: (91.3, 94.4), 512: (91.7, 95.6)},
}
# sMNIST, psMNIST and sCIFAR, with the paper's deviations
FG: dict[str, tuple[tuple[float, ...], ...]] = {
    "softsign_lstm": ((97.50, 0.58), (91.71, 0.33), (59.21, 0.39)),
    "sigmoid": ((98.88, 0.12), (95.71, 0.02), (69.14, 0.39)),
    "refine_lstm": ((98.94, 0.03), (95.93, 0.16), (69.55, 0.50)),
    "fast_lstm": ((99.05, 0.04), (96.18, 0.14), (70.06, 0.38)),
    "chrono_lstm": ((98.83, 0.09), (94.37, 0.69), (60.36, 0.51)),
    "janet": ((98.59, 0.03), (93.85, 0.23), (60.99, 0.51)),
    "nru": ((98.73, 0.27), (94.76, 0.35), (62.32, 0.30)),
}
LIMITED = (
    "Before training, the memory of nru grows exponentially, and would reach 1e12 or more in 784 steps with "
    "128 units, 1e8 with 512. In the code of Chandar et al. 2019 (github.com/apsarath/NRU) a row's sum of "
    "fifth powers overflows float32 when its 5-norm exceeds 5e7. Such a row counts as 0, there and here, "
    "which keeps the memory near 5e4. So the loss starts in the thousands. With 128 units it falls to that of "
    "guessing in the first 200 to 320 updates, and then the cell learns."
)
TASKS = ("smnist", "psmnist", "scifar")
SMALL, SMALL_UNITS = "psmnist-fg-small", 128
SMALL_MORE: dict[str, dict[str, Any]] = {
    "nru": {"settings": {"cell_options": "memory_size=144:heads=4"}}
}
# Hypotheses about why `sigmoid` stays below its published accuracy.
SEARCH = "psmnist-fg-settings"
SETTINGS: dict[str, dict[str, Any]] = {
    "batch-50": {"settings": {"batch_size": 50}},
    "batch-32": {"settings": {"batch_size": 32}},
    "clip-5": {"settings": {"clip_norm": 5.0}},
    "weight-decay": {"label": "weight decay 1e-5", "settings": {"weight_decay": 1e-5}},
    "dropout-.2": {"settings": {"dropout": 0.2}},
    "dropout-.5": {"settings": {"dropout": 0.5}},
    "cosine-200": {"label": "cosine schedule over 200 epochs", "schedule": "cosine", "epochs": 200},
    "plateau": {
        "label": "rate divided by 10 at a plateau of 5 epochs",
        "schedule": "reduce_lr_on_plateau",
        "settings": {"lr_patience": 5},
    },
    "order-2": {"label": "another order of the pixels", "settings": {"permute": 2}},
    "order-3": {"label": "a third order of the pixels", "settings": {"permute": 3}},
    "float32": {"bf16": False},
}


def image_variant(
    home: str,
    task: str,
    arch: str,
    name: str,
    units: int,
    value: float | None = None,
    spread: float | None = None,
    **more: Any,
) -> Variant:
    return Variant(
        home,
        name,
        more.pop("label", name.replace("_", " ")),
        arch,
        task,
        settings={**TRAINING, "decoder_hidden_size": units, **more.pop("settings", {})},
        published={} if value is None else {"test_accuracy": value / 100},
        spread={} if spread is None else {"test_accuracy": spread / 100},
        **{"data": "mnist", "epochs": EPOCHS, **more},
    )


def gate_arch(kind: str, task: str) -> str:
    """`sigmoid` is the LSTM whose forget gates start at sigmoid(1)."""
    return f"lstm_classifier_{task}_fg" if kind == "sigmoid" else f"{kind}_classifier_{task}"


def gate_variants(task: str, **more: Any) -> tuple[Variant, ...]:
    """FG's gates."""
    return tuple(
        image_variant(
            f"{task}-fg",
            task,
            gate_arch(kind, task),
            kind,
            512,
            *values[TASKS.index(task)],
            **more,
        )
        for kind, values in FG.items()
    )


for task, title in NAMES.items():
    pl, fg = f"{task}-pl", f"{task}-fg"
    register(
        Experiment(
            pl,
            f"{title}, power-law LSTM",
            "PL table 1",
            RECIPE,
            tuple(
                image_variant(
                    pl, task, f"{kind}_classifier_{task}", f"{kind}-{units}", units, value
                )
                for units, values in PL[task].items()
                for kind, value in zip(("lstm", "plstm"), values, strict=True)
            ),
            (ACCURACY,),
            seeds=3,
            pairs=tuple((f"plstm-{units}", f"lstm-{units}") for units in PL[task]),
            figures=("curves",),
            smoke=SMOKE,
            worth={
                "*-256": Worth(2 if task == "psmnist" else 5, 3.1, parts=4, enough=50),
                "*-512": Worth(2 if task == "psmnist" else 5, 4.8, parts=2, enough=50),
            },
            notes=("The paper reports three runs that converged; here every seed counts.",),
        )
    )
    register(
        Experiment(
            fg,
            f"{title}, gates",
            "FG table 2",
            RECIPE + GATES,
            gate_variants(task),
            (ACCURACY,),
            seeds=3,
            pairs=(("fast_lstm", "sigmoid"),),
            figures=("curves",),
            smoke=SMOKE,
            # With this recipe sigmoid stays two points below the paper's number; so first other settings.
            worth={
                "nru": Worth(8, 25, parts=1),
                "*": Worth(5 if task == "psmnist" else 8, 4.8, parts=2, enough=50),
            },
            notes=(LIMITED,),
        )
    )

register(
    Experiment(
        "scifar-fg",
        "Sequential CIFAR-10, gates",
        "FG table 2",
        "1,024 steps of one pixel (red, green, blue), 45,000/5,000/10,000 images, "
        + CHOSEN
        + GATES,
        gate_variants("scifar", data="cifar-10", hindered="the data is not here"),
        (ACCURACY,),
        seeds=3,
        pairs=(("fast_lstm", "sigmoid"),),
        figures=("curves",),
        smoke=SMOKE,
        worth={"nru": Worth(9, 30, parts=1), "*": Worth(8, 12, parts=2)},
        notes=("A step has the three colours of a pixel, as in Gu et al. 2020.",),
    )
)

register(
    Experiment(
        SMALL,
        "Permuted sequential MNIST, smaller models",
        "FG appendix F.3",
        f"{RECIPE} {SMALL_UNITS} units (nru: memory of 144), forget gates start at sigmoid(1).",
        tuple(
            image_variant(
                SMALL,
                "psmnist",
                gate_arch(kind, "psmnist"),
                kind,
                SMALL_UNITS,
                **SMALL_MORE.get(kind, {}),
            )
            for kind in FG
        ),
        (ACCURACY,),
        seeds=3,
        pairs=(("fast_lstm", "sigmoid"),),
        figures=("curves",),
        smoke=SMOKE,
        worth={
            # fast_lstm has 100 epochs, and only runs about as long are compared
            "nru": Worth(3, 21, enough=90),
            "fast_lstm": Worth(3, 1),
            "*": Worth(8, 3),
        },
        notes=(
            "The sizes are our choice, since the appendix with those of the paper was not available. According "
            "to the paper's text, nru is the best of the smaller models on this task.",
            LIMITED,
            "nru has the memory of `psmnist-fg`. With a memory of 64, whose start is less stable, gradients "
            "exceeded the range of float32 in two of three trial runs, after 13 and 113 updates.",
        ),
    )
)

register(
    Experiment(
        SEARCH,
        "Permuted sequential MNIST, other settings of the sigmoid gate",
        "FG table 2",
        "Like `sigmoid` of `psmnist-fg`, whose published accuracy is 95.71%, with one change.",
        tuple(
            image_variant(SEARCH, "psmnist", gate_arch("sigmoid", "psmnist"), name, 512, **more)
            for name, more in SETTINGS.items()
        ),
        (ACCURACY,),
        figures=("curves",),
        smoke=SMOKE,
        worth={"*": Worth(4, 3.1, parts=2, enough=30)},
        notes=(
            "The gates are compared under a setting in which `sigmoid` reaches 95%; if none of these does, "
            "under that of `psmnist-fg`.",
        ),
    )
)

for task, order in (("psmnist", "in a fixed random order"), ("smnist", "in order")):
    register_claim(
        f"The power-law LSTM is ahead of the LSTM on pixels {order}",
        "PL table 1",
        *(Ahead(f"{task}-pl", f"plstm-{units}", f"lstm-{units}") for units in PL[task]),
    )
register_claim(
    "The faster a gate saturates, the better it is on permuted pixels",
    "FG table 2",
    Ahead("psmnist-fg", "fast_lstm", "refine_lstm"),
    Ahead("psmnist-fg", "refine_lstm", "sigmoid"),
    Ahead("psmnist-fg", "sigmoid", "softsign_lstm"),
)
register_claim(
    "Among smaller models NRU is ahead of the fast gate on permuted pixels",
    "FG appendix F.3",
    Ahead(SMALL, "nru", "fast_lstm"),
)
