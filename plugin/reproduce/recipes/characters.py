"""Character models: PL table 2."""

from __future__ import annotations

from typing import Any

from ..claims import register_afterwards, register_claim, register_prediction
from ..comparisons import Ahead
from ..limits import Between
from ..recipe import Experiment, Metric, Variant, Worth, register

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


KINDS = ("lstm", "plstm")
CHANDAR = 1.48  # the LSTM of Chandar et al. 2019, whose protocol PL says it follows
DENSE: dict[str, Any] = {"decoder_embed_dim": 200, "embed_init": "normal", "clip_norm": 5.0}


def ptb_variant(home: str, kind: str, length: int, carried: bool, **more: Any) -> Variant:
    """A variant whose state is reset at every segment (apparently as in the paper) or carried from one to the
    next."""
    how = "carried" if carried else "reset"
    settings: dict[str, Any] = {
        "batch_size": 128,
        "tokens_per_sample": length,
        "clip_norm": 1.0,
        "lr": 1e-3,
        "reset_state": not carried,
    }
    if not carried:  # segments are independent, so parallel streams lose no context
        settings |= {"valid_batch_size": 128, "test_batch_size": 128}
    return Variant(
        home,
        more.pop("name", f"{kind}-{length}-{how}"),
        more.pop("label", f"{kind}, length {length}, state {how}"),
        f"{kind}_lm_ptb_char",
        "language_modeling",
        data=more.pop("data", "ptb-char"),
        settings={**settings, **more.pop("settings", {})},
        epochs=more.pop("epochs", 50),
        measures=("test",) if carried else ("test", "carried"),
        **more,
    )


def other_variant(
    kind: str, length: int, carried: bool, end: str, words: str, **more: Any
) -> Variant:
    """The same variant with another setting, data set or length. Its name and label say which."""
    known = ptb_variant(OTHERS, kind, length, carried)
    name, label = f"{known.name}-{end}", f"{known.label}, {words}"
    return ptb_variant(OTHERS, kind, length, carried, name=name, label=label, **more)


OTHERS = "ptb-char-settings"
PTB_VARIANTS = [
    [
        ptb_variant(
            "ptb-char", kind, length, carried, published={} if carried else {"test_bpc": value}
        )
        for kind, value in zip(KINDS, PTB[length], strict=True)
    ]
    for carried in (False, True)
    for length in PTB
]
TUNED = [
    [
        other_variant(
            kind,
            length,
            carried,
            "dropout",
            "dropout .5, Adam 4e-3",
            settings={"lr": 4e-3, "dropout": 0.5},
        )
        for kind in KINDS
    ]
    for carried in (False, True)
    for length in PTB
]
# Hypotheses about why the paper's settings do not give its published numbers.
WHY = tuple(
    variant
    for kind in KINDS
    for variant in (
        other_variant(
            kind,
            150,
            True,
            "chandar",
            "the protocol of Chandar et al.",
            settings={**DENSE, "decoder_hidden_size": 630, "valid_batch_size": 128}
            | {"test_batch_size": 128},
            epochs=20,
            published={"test_bpc": CHANDAR} if kind == "lstm" else {},
        ),
        *(
            other_variant(
                kind, 150, carried, "embedded", "embedding of 200 from N(0, 1)", settings=DENSE
            )
            for carried in (False, True)
        ),
        *(
            other_variant(
                kind,
                150,
                carried,
                "embedded20",
                "embedding of 20 from N(0, 1)",
                settings={**DENSE, "decoder_embed_dim": 20},
            )
            for carried in (False, True)
        ),
        other_variant(
            kind, 150, False, "raw", "text with its spaces at line ends", data="ptb-char-raw"
        ),
        other_variant(kind, 150, False, "27", "27 symbols", data="ptb-char-27"),
        *(
            other_variant(
                kind,
                150,
                False,
                f"embedded-dropout{10 * rate:g}",
                f"embedding of 200 from N(0, 1), dropout {rate}",
                settings={**DENSE, "dropout": rate},
            )
            for rate in (0.2, 0.5)
        ),
    )
)
N_GRAM = Variant(
    OTHERS,
    "6-gram",
    "6-gram, Witten-Bell",
    data="ptb-char",
    settings={"order": 6},
    program="n-gram",
)
CARRIED = Metric("carried_bpc", "with the state carried in the test", 1, 4)

register(
    Experiment(
        "ptb-char",
        "Penn Treebank, characters",
        "PL table 2",
        "One-hot characters, 716 (lstm) or 828 (plstm) units, batch 128, 50 epochs, tested at the epoch with "
        "the best validation; gradients clipped to norm 1 and Adam at 1e-3 are our choice.",
        tuple(variant for row in PTB_VARIANTS for variant in row),
        (BITS, CARRIED),
        seeds=5,
        pairs=tuple((plstm.name, lstm.name) for lstm, plstm in PTB_VARIANTS),
        figures=("curves",),
        smoke=SMOKE,
        worth={"*": Worth(5, 1.2, parts=1)},
        notes=(
            "The paper does not say whether the state is carried from one segment to the next. The gap "
            "between its lengths 150 and 500 suggests that it is reset, and the published layer restarts its "
            "clock in every call. So the published numbers are shown in the rows with reset state.",
            "With reset state, validation and test run as 128 streams in segments of the same length as in "
            "training. With carried state, the test is one stream. The second column tests the same "
            "checkpoint with the state carried from segment to segment.",
            "With the settings given in the paper and Adam at 1e-3, both models miss its numbers by far more "
            "than the noise between seeds: they overfit after 20 epochs (see the curves), while those of the "
            f"paper still improve. `{OTHERS}` shows what else was tried. Carrying the state in training, or "
            "segments of 500, change less than the gap. With reset state, both models miss at both lengths by "
            ".130 to .132 bits, so they differ as in the paper; at 500 there is one seed of each.",
        ),
    )
)

register(
    Experiment(
        OTHERS,
        "Penn Treebank, characters, other settings",
        "PL table 2, Chandar et al. 2019",
        "Like `ptb-char` with one change: a setting that the paper does not give, or one that could explain "
        "its numbers. Chandar et al.: an embedding of 200 from N(0, 1), 630 units, state carried, clipping 5, "
        "20 epochs. The 6-gram is a model of character counts, without a network.",
        tuple(variant for row in TUNED for variant in row) + WHY + (N_GRAM,),
        (BITS, CARRIED),
        pairs=tuple((plstm.name, lstm.name) for lstm, plstm in TUNED),
        figures=("curves",),
        smoke=SMOKE,
        worth={"6-gram": Worth(1, 0.5), "*": Worth(3, 1.2, parts=1)},
        notes=(
            "The protocol of Chandar et al. gives fewer bits here than they report, so the pipeline is not at "
            "fault. An embedding drawn from N(0, 1) instead of one-hot characters has the largest single "
            "effect, followed by dropout. Resetting the state costs .04 to .05 at length 150.",
            "None of these is PL's setting, so no number of PL is shown. The text with 27 symbols and "
            "the one with spaces at line ends are different texts, so their bits cannot be compared with "
            "other rows.",
            "Dropout .5 and Adam 4e-3 were chosen by the validation scores of shorter runs, which are not "
            "among these summaries: `lstm` with carried state and dropout .5 had 1.51 at Adam 1e-3 and 1.45 "
            "at 2e-3 after 50 epochs, and 1.44 at 4e-3 and 1.50 at 8e-3 after 18. torch's nn.LSTM, trained "
            "on the same batches in a plain loop for 12 epochs, had the same validation curve as `lstm`, so "
            "the kernels are not the cause.",
        ),
    )
)

register(
    Experiment(
        "text8",
        "text8",
        "PL table 2",
        "One-hot characters, two layers of 512 (lstm) or 592 (plstm) units, length 500; batch 128, "
        "Adam 1e-3, state reset and 20 epochs are our choice.",
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
        figures=("curves",),
        smoke={**SMOKE, "validate_interval_updates": 0},
        worth={"*": Worth(9, 4, parts=1)},
    )
)

register_claim(
    "The power-law LSTM is ahead of the LSTM on characters",
    "PL table 2",
    Ahead("ptb-char", "plstm-150-reset", "lstm-150-reset", less=True),
    Ahead(OTHERS, "plstm-150-reset-dropout", "lstm-150-reset-dropout", less=True),
)
register_claim(
    "The settings given in the paper reproduce its bits per character to within 1%",
    "PL table 2",
    *(
        Between("ptb-char", f"{kind}-150-reset", low=0.99 * value, high=1.01 * value)
        for kind, value in zip(KINDS, PTB[150], strict=True)
    ),
)
register_afterwards(
    "Segments of 500 characters give fewer bits than segments of 150",
    "PL table 2",
    *(Ahead("ptb-char", f"{kind}-500-reset", f"{kind}-150-reset", less=True) for kind in KINDS),
)
register_afterwards(
    "The power-law LSTM is ahead of the LSTM on characters in segments of 500",
    "PL table 2",
    Ahead("ptb-char", "plstm-500-reset", "lstm-500-reset", less=True),
)
register_claim(
    "The power-law LSTM is ahead of the LSTM on text8",
    "PL table 2",
    Ahead("text8", "plstm", "lstm", less=True),
)
register_prediction(
    OTHERS,
    "An embedding from N(0, 1) explains the bits that are missing: with 20 units, which fits the paper's 2.15M "
    "parameters as well as one-hot characters do, and with the state carried, both models are within 1% of the "
    "paper's bits at length 150.",
    *(
        Between(OTHERS, f"{kind}-150-carried-embedded20", low=0.99 * value, high=1.01 * value)
        for kind, value in zip(KINDS, PTB[150], strict=True)
    ),
)
