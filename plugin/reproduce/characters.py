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


def ptb_variant(
    kind: str, length: int, carried: bool, value: float | None, dropout: float = 0.0
) -> Variant:
    """State reset at every segment (so it seems in the paper), or carried from one to the next."""
    how = "carried" if carried else "reset"
    name, label = f"{kind}-{length}-{how}", f"{kind}, length {length}, state {how}"
    if dropout:
        name, label = f"{name}-dropout", f"{label}, dropout {dropout:g}"
    # With the state reset every segment stands alone, so many streams at once cost nothing.
    streams = {} if carried else {"valid_batch_size": 128, "test_batch_size": 128}
    settings: dict[str, Any] = {
        "batch_size": 128,
        "tokens_per_sample": length,
        "lr": 1e-3,
        "clip_norm": 1.0,
        "reset_state": not carried,
        **({"dropout": dropout} if dropout else {}),
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
        published={} if carried or value is None else {"test_bpc": value},
    )


register(
    Experiment(
        "ptb-char",
        "Penn Treebank, characters",
        "PL table 2",
        "One-hot characters, 716 (lstm) or 828 (plstm) units, batch 128, Adam 1e-3, gradient norm at "
        "most 1, 50 epochs, test at the epoch with the best validation.",
        tuple(
            ptb_variant(kind, length, carried, value)
            for carried in (False, True)
            for length, values in PTB.items()
            for kind, value in zip(("lstm", "plstm"), values, strict=True)
        )
        + tuple(
            ptb_variant(kind, 150, carried, None, dropout=0.5)
            for carried in (False, True)
            for kind in ("lstm", "plstm")
        ),
        (BITS,),
        seeds=5,
        pairs=tuple(
            (f"plstm-{length}-{how}", f"lstm-{length}-{how}")
            for how in ("reset", "carried")
            for length in PTB
        ),
        figure="curves",
        smoke=SMOKE,
        notes=(
            "The paper does not say whether the state is carried from one segment to the next; the "
            "gap between its lengths 150 and 500 suggests that it is reset, so its numbers stand "
            "beside those rows.",
            "With the state reset, validation and test run as 128 streams in segments of the same "
            "length as in training; carried, test is one stream.",
            "Both models miss the paper's numbers by far more than the seeds' noise: without any "
            "regularisation they overfit (see the curves), and the paper's still improve after 20 "
            "epochs. What was tried, in runs that are not among these summaries: torch's own nn.LSTM, "
            "trained on the same batches by a plain loop over 12 epochs, had the validation curve of "
            "`lstm`, with the state reset and with the state carried, so it is not the kernels. "
            "Carrying the state helped in both; batches of 64, length 100 and a learning rate of 2e-3 "
            "did not. Whether dropout closes the gap, the last rows are to show.",
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
