"""Character models: PL table 2."""

from __future__ import annotations

from typing import Any

from .recipe import Experiment, Metric, Variant, register

BITS = Metric("test_bpc", "test bits per character", 1, 4)
PTB = {150: (1.426, 1.420), 500: (1.403, 1.396)}
TEXT8 = {"lstm": 1.552, "plstm": 1.544}
SMOKE = {
    "decoder_hidden_size": 8,
    "batch_size": 4,
    "tokens_per_sample": 10,
    "valid_batch_size": 2,
    "test_batch_size": 2,
}


def ptb_variant(kind: str, length: int, carried: bool, value: float, tuned: bool) -> Variant:
    """State reset at every segment (so it seems in the paper), or carried from one to the next; with what the
    paper tells alone, or tuned: dropout and a higher learning rate."""
    how = "carried" if carried else "reset"
    name, label = f"{kind}-{length}-{how}", f"{kind}, length {length}, state {how}"
    more: dict[str, Any] = {"lr": 4e-3, "dropout": 0.5} if tuned else {"lr": 1e-3}
    if tuned:
        name, label = f"{name}-dropout", f"{label}, dropout .5, Adam 4e-3"
    # With the state reset every segment stands alone, so many streams at once cost nothing.
    streams = {} if carried else {"valid_batch_size": 128, "test_batch_size": 128}
    settings: dict[str, Any] = {
        "batch_size": 128,
        "tokens_per_sample": length,
        "clip_norm": 1.0,
        "reset_state": not carried,
        **more,
        **streams,
    }
    return Variant(
        "ptb-char",
        name,
        label,
        f"{kind}_lm_ptb_char",
        "language_modeling",
        data="ptb-char",
        settings=settings,
        epochs=50,
        published={} if carried else {"test_bpc": value},
    )


PTB_ROWS = [(150, False, False)] + [
    (length, carried, True) for carried in (False, True) for length in PTB
]
PTB_VARIANTS = [
    [
        ptb_variant(kind, length, carried, value, tuned)
        for kind, value in zip(("lstm", "plstm"), PTB[length], strict=True)
    ]
    for length, carried, tuned in PTB_ROWS
]

register(
    Experiment(
        "ptb-char",
        "Penn Treebank, characters",
        "PL table 2",
        "One-hot characters, 716 (lstm) or 828 (plstm) units, batch 128, 50 epochs, test at the epoch with the "
        "best validation; gradient norm at most 1 and Adam at 1e-3, or at 4e-3 with dropout .5 where a row "
        "says so, were chosen here.",
        tuple(variant for row in PTB_VARIANTS for variant in row),
        (BITS,),
        seeds=5,
        pairs=tuple((plstm.name, lstm.name) for lstm, plstm in PTB_VARIANTS),
        figure="curves",
        smoke=SMOKE,
        notes=(
            "The paper does not say whether the state is carried from one segment to the next; the "
            "gap between its lengths 150 and 500 suggests that it is reset, so its numbers stand "
            "beside those rows.",
            "With the state reset, validation and test run as 128 streams in segments of the same "
            "length as in training; carried, test is one stream.",
            "With what the paper tells and Adam at 1e-3 both models miss its numbers by far more than the "
            "seeds' noise: they overfit after 20 epochs (see the curves), while the paper's still improve. "
            "What was tried, in runs that are not among these summaries: torch's own nn.LSTM, trained on "
            "the same batches by a plain loop over 12 epochs, had the validation curve of `lstm`, so it is "
            "not the kernels. Validation of `lstm`, one seed each: state carried, dropout .5: 1.51 at Adam "
            "1e-3 and 1.45 at 2e-3 after 50 epochs, 1.44 at 4e-3 and 1.50 at 8e-3 after 18; state reset, 4e-3: "
            "1.58 without dropout after 14, 1.49 with it after 18. Dropping half of U as well was slower (1.65 "
            "after 18 epochs at 1e-3). So dropout .5 on the output and 4e-3 were taken for the other rows; "
            "the paper names neither.",
        ),
    )
)

register(
    Experiment(
        "text8",
        "text8",
        "PL table 2",
        "One-hot characters, two layers of 512 (lstm) or 592 (plstm) units, length 500; batch 128, "
        "Adam 1e-3, state reset and 20 epochs were chosen here.",
        tuple(
            Variant(
                "text8",
                kind,
                kind,
                f"{kind}_lm_text8",
                "language_modeling",
                data="text8",
                settings={
                    "batch_size": 128,
                    "tokens_per_sample": 500,
                    "lr": 1e-3,
                    "clip_norm": 1.0,
                    "reset_state": True,
                    "valid_batch_size": 128,
                    "test_batch_size": 128,
                    "validate_interval_updates": 375,
                },
                epochs=20,
                published={"test_bpc": value},
                shortened="48M / 2M / 2M characters of a prefix of 52M, not 90M / 5M / 5M",
            )
            for kind, value in TEXT8.items()
        ),
        (BITS,),
        seeds=1,
        pairs=(("plstm", "lstm"),),
        figure="curves",
        smoke={**SMOKE, "validate_interval_updates": 0},
    )
)
