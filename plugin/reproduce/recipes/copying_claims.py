"""What PL and FG say about copying: sections 3.4, 4.1, 5.1 to 5.3, A.3 and A.4; figure 4."""

from __future__ import annotations

from ..claims import register_afterwards, register_claim, register_prediction
from ..comparisons import Ahead
from ..limits import Between, Mean
from ..quantities import (
    DIVERGED,
    EXPONENT,
    LEARNED,
    LONGER,
    NEED,
    SHARE_LEFT,
    SHORTER,
    WAITING,
    WAITING_EXPONENT,
    WORST,
    accuracy_by,
)
from .copying import DOUBLED

HALF = 0.5
FAILED, FAILED_BY = 0.2, 200  # in the authors' code: below this accuracy after so many epochs
CHANCE = 1 / 9  # as PL A.4 counts it; of the 8 symbols alone, 1 in 8 is right by chance
SPEED = "updates_to_90"
ELSEWHERE = "copy-generalization"
RIVALS = ("lstm", "chrono_lstm")
LEARNERS = ("plstm", "chrono_lstm")

register_claim(
    "The power-law LSTM learns to copy over 200 and 500 steps",
    "PL 4.1",
    *(Between("copy", f"plstm-{T}", low=LEARNED) for T in (200, 500)),
)
register_claim(
    "The LSTM does not learn to copy over 500 steps",
    "PL 4.1",
    Between("copy", "lstm-500", high=LEARNED),
    Between("copy", "lstm-500", high=HALF),
    Between("copy", "lstm-500", accuracy_by(FAILED_BY), high=FAILED),
    earlier="19 November 2026: not reproduced, lstm-500: 81.4, 13.8, 44.8, not all at most 50.0 (3 seeds)",
    note=f"Three readings of failing: never {LEARNED:.0%}, the bar at which the power-law LSTM counts as "
    f"having learned; never {HALF:.0%}, the rule before; below {FAILED:.0%} after {FAILED_BY} epochs, as in "
    "the authors' code",
)
register_claim(
    "The power-law LSTM learns to copy in fewer updates than the chrono LSTM",
    "PL 4.1",
    *(Ahead("copy", f"plstm-{T}", f"chrono_lstm-{T}", SPEED, less=True) for T in (200, 500)),
)
register_claim(
    "The power-law LSTM learns to copy over 200 steps in fewer updates than the LSTM",
    "PL 4.1, figure 3",
    Ahead("copy", "plstm-200", "lstm-200", SPEED, less=True),
    earlier="20 November 2026: reproduced, as Student's t took these bounds for values, which is not valid",
)
register_afterwards(
    "The power-law and the chrono LSTM learn to copy over 1,000 steps",
    "PL 4.1, figure 3",
    *(Between("copy", f"{kind}-1000", low=LEARNED) for kind in LEARNERS),
)
register_claim(
    "With lengths that vary, the power-law and the chrono LSTM learn to copy, and the LSTM does not",
    "PL A.3",
    *(Between("variable-copy", f"{k}-200-{T}", low=LEARNED) for k in LEARNERS for T in (500, 1000)),
    *(Between("variable-copy", f"lstm-200-{T}", high=LEARNED) for T in (500, 1000)),
)
register_claim(
    "Trained at T = 500, the power-law LSTM is the best at T = 200",
    "PL A.4",
    *(Ahead(ELSEWHERE, "plstm-500", f"{rival}-500", "accuracy_at_200") for rival in RIVALS),
)
register_afterwards(
    "Trained at T = 500, the power-law and the chrono LSTM differ by at most 10 points at T = 2,000",
    "PL A.4",
    Mean(ELSEWHERE, "plstm-500", "accuracy_at_2000", -0.1, 0.1, "chrono_lstm-500"),
)
for text, best, other, key in (
    ("the LSTM is the best at shorter T", "lstm", "chrono_lstm", SHORTER),
    ("the chrono LSTM is the best at longer T", "chrono_lstm", "lstm", LONGER),
):
    register_afterwards(
        f"Trained at T = 200, {text}",
        "PL A.4",
        *(Ahead(ELSEWHERE, f"{best}-200", f"{kind}-200", key) for kind in ("plstm", other)),
    )
register_afterwards(
    "Models that have learned a T are above chance at every other T",
    "PL A.4",
    *(
        Between(ELSEWHERE, f"{kind}-{T}", WORST, low=CHANCE, seeds=1)
        for T in (200, 500)
        for kind in LEARNERS
    ),
    note=f"No LSTM has learned its T to {LEARNED:.0%}. One run is enough against what is said of every one",
)
register_claim(
    "With fixed exponents, a smaller p learns faster",
    "PL 5.1",
    Ahead("fixed-p", "plstm-p0.1-200", "plstm-p0.9-200", SPEED, less=True),
    earlier="19 November 2026: reproduced, each of the seven p - the next: -9,384, -13,294, -4,692, -140,760, "
    "-24,242, below -21,896 (updates to 50%, 1 seed)",
    note="The rule is the first one again, which was written before the runs, with three seeds instead of one. "
    "As p = .9 did not reach 90%, the level became 50% after the results were known, and then all seven had to "
    "be in the order that was seen. The paper trains for 1,000 epochs",
)
register_afterwards(
    "With p of 1 or more the power-law LSTM hardly learns to copy",
    "PL 5.1",
    *(Between("fixed-p", f"plstm-p{p}-200", high=LEARNED) for p in ("1", "1.5")),
)
register_claim(
    "The power-law LSTM learns to copy wherever its exponents start",
    "PL 3.4",
    *(Between("start-p", f"plstm-p{p}-200", low=LEARNED) for p in ("0-0.25", "0-0.5", "0.5-1")),
)
# These margins were chosen before any run had been analysed.
register_claim(
    "About one unit in five waits for the signal",
    "PL 5.2",
    *(Between("copy", f"plstm-{T}", WAITING, 0.1, 0.3) for T in (200, 500)),
)
register_claim(
    "The mean exponent is .41 at T = 200 and .19 at T = 500, within .1",
    "PL 5.2",
    Between("copy", "plstm-200", EXPONENT, 0.31, 0.51),
    Between("copy", "plstm-500", EXPONENT, 0.09, 0.29),
)
register_afterwards(
    "The mean exponent is smaller at T = 500 than at T = 200",
    "PL 5.2",
    Ahead("copy", "plstm-500", "plstm-200", EXPONENT, less=True, margin=(0.41 - 0.19) / 2),
)
register_afterwards(
    "Units that wait have smaller exponents",
    "PL 5.2",
    *(Between("copy", f"plstm-{T}", WAITING_EXPONENT, high=0.0) for T in (200, 500)),
)
register_claim(
    "The task depends on the units that wait",
    "PL 5.3",
    *(Mean("copy", f"plstm-{T}", NEED, low=0.0) for T in (200, 500)),
    earlier="19 November 2026: not reproduced, plstm-200: 0.5, 2.2, 1.5; plstm-500: 2.5, 0.5, 0.6, not all at "
    "least 5.0 (the same difference, mean over all numbers of units, %, 3 seeds)",
    note="The earlier mean, over all numbers of silenced units, includes those at which even random ones leave "
    "no more than chance (in the figure), which hides the difference",
)
register_claim(
    "The power-law LSTM is more robust to the loss of random units",
    "PL 5.3",
    *(Ahead("copy", f"plstm-{T}", f"{k}-{T}", SHARE_LEFT) for T in (200, 500) for k in RIVALS),
    earlier="19 November 2026: open, plstm-200 - lstm-200: +5.4 ± 1.8, undecided; plstm-200 - chrono_lstm-200: "
    "-1.9 ± 0.8, undecided (3 seeds); plstm-500 - lstm-500: +5.7; plstm-500 - chrono_lstm-500: +0.3 (accuracy "
    "without random units, mean over numbers of units, %, 1 seed)",
    note="Changed for the same reason as that of the units that wait",
)
register_afterwards(
    "At T = 200 the chrono LSTM is less robust to the loss of random units than the LSTM",
    "PL 5.3",
    Ahead("copy", "lstm-200", "chrono_lstm-200", SHARE_LEFT),
)
for text, *others in (
    (
        "Among the gates the fast one learns to copy first",
        "sigmoid",
        "refine_lstm",
        "softsign_lstm",
    ),
    ("The fast gate learns to copy before the chrono LSTM and JANET", "chrono_lstm", "janet"),
):
    register_afterwards(
        text,
        "FG figure 4",
        *(Ahead("copy", "fast_lstm-500", f"{k}-500", SPEED, less=True) for k in others),
    )
register_afterwards(
    "The softsign gate does not learn to copy",
    "FG figure 4",
    Between("copy", "softsign_lstm-500", high=FAILED),
)
register_afterwards(
    "NRU diverges when it learns to copy",
    "FG figure 4",
    Between("copy", "nru-500", DIVERGED, low=1),
)

register_prediction(
    "copy",
    "If the paper's chrono LSTM has the bias log(u) in both bias vectors of torch's nn.LSTM, its time "
    "constants are squared. So with T_max = 300^2 / e chrono reaches 90% after at least twice as many updates "
    "as with 300 (mean over the seeds), and after the power-law LSTM.",
    Ahead("copy", DOUBLED.name, "chrono_lstm-200", SPEED, times=2.0),
    Ahead("copy", "plstm-200", DOUBLED.name, SPEED, less=True),
    earlier="20 November 2026: right, by the mean of the ratios, 3.06, above 3.33 and above 2.74, and as "
    "Student's t took bounds for values",
)
register_prediction(
    "start-p",
    "The paper's mean exponents, .41 and .19, come from exponents that start in a part of (0, 1): p from "
    "U(0, .5) gives a mean of .35 to .45 at T = 200, and p from U(0, .25) one of .15 to .25 at T = 500.",
    Between("start-p", "plstm-p0-0.5-200", EXPONENT, 0.35, 0.45),
    Between("start-p", "plstm-p0-0.25-500", EXPONENT, 0.15, 0.25),
)
register_prediction(
    "fixed-p",
    "With seeds 2 and 3, p = .1 is still ahead of p = .9 in the updates to 90%.",
    Ahead("fixed-p", "plstm-p0.1-200", "plstm-p0.9-200", SPEED, less=True),
)
