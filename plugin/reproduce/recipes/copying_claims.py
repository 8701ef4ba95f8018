"""What PL and FG say about copying: sections 3.4, 4.1, 5.1 to 5.3, A.3 and A.4; figure 4."""

from __future__ import annotations

from itertools import pairwise

from ..claims import register_claim, register_prediction
from ..comparisons import Ahead, Comparable, Times
from ..limits import Between, Diverges, Mean
from ..quantities import (
    ABLATION,
    EXPONENT,
    LONGER,
    NEED,
    ROBUSTNESS,
    SHARE_LEFT,
    SHORTER,
    WAITING,
    WAITING_EXPONENT,
    WORST,
    accuracy_by,
)
from ..recipe import EXPERIMENTS
from .copying import DOUBLED, FIXED

LEARNED = 0.98
HALF = 0.5
FAILED, FAILED_BY = 0.2, 200  # in the authors' code: below this accuracy after so many epochs
CHANCE = 1 / 9  # as PL A.4 counts it; of the 8 symbols alone, 1 in 8 is right by chance
SPEED = "updates_to_90"
ELSEWHERE = "copy-generalization"

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
    afterwards=True,
    note=f"Three readings of failing: never {LEARNED:.0%}, the bar at which the power-law LSTM counts as "
    f"having learned; never {HALF:.0%}, the only rule until the results were known; below {FAILED:.0%} after "
    f"{FAILED_BY} epochs, as in the authors' code",
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
    afterwards=True,
)
register_claim(
    "The power-law and the chrono LSTM learn to copy over 1,000 steps",
    "PL 4.1, figure 3",
    *(Between("copy", f"{kind}-1000", low=LEARNED) for kind in ("plstm", "chrono_lstm")),
    afterwards=True,
)
register_claim(
    "With lengths that vary, the power-law and the chrono LSTM learn to copy, and the LSTM does not",
    "PL A.3",
    *(
        Between("variable-copy", f"{kind}-200-{end}", low=LEARNED)
        for kind in ("plstm", "chrono_lstm")
        for end in (500, 1000)
    ),
    *(Between("variable-copy", f"lstm-200-{end}", high=LEARNED) for end in (500, 1000)),
)
register_claim(
    "Trained at T = 500, the power-law LSTM is the best at T = 200",
    "PL A.4",
    *(
        Ahead(ELSEWHERE, "plstm-500", f"{other}-500", "accuracy_at_200")
        for other in ("lstm", "chrono_lstm")
    ),
)
register_claim(
    "Trained at T = 500, the power-law and the chrono LSTM differ by at most 10 points at T = 2,000",
    "PL A.4",
    Comparable(ELSEWHERE, "plstm-500", "chrono_lstm-500", "accuracy_at_2000", 0.1),
    afterwards=True,
)
register_claim(
    "Trained at T = 200, the LSTM is the best at shorter T",
    "PL A.4",
    *(Ahead(ELSEWHERE, "lstm-200", f"{other}-200", SHORTER) for other in ("plstm", "chrono_lstm")),
    afterwards=True,
)
register_claim(
    "Trained at T = 200, the chrono LSTM is the best at longer T",
    "PL A.4",
    *(Ahead(ELSEWHERE, "chrono_lstm-200", f"{other}-200", LONGER) for other in ("plstm", "lstm")),
    afterwards=True,
)
register_claim(
    "Models that have learned a T are above chance at every other T",
    "PL A.4",
    *(
        Between(ELSEWHERE, v.name, WORST, low=CHANCE)
        for v in FIXED
        if v.name in ("plstm-200", "lstm-200", "chrono_lstm-200", "plstm-500", "chrono_lstm-500")
    ),
    afterwards=True,
)
register_claim(
    "With fixed exponents, a smaller p learns faster",
    "PL 5.1",
    Ahead("fixed-p", "plstm-p0.1-200", "plstm-p0.9-200", SPEED, less=True, seeds=1),
    earlier=tuple(
        Ahead("fixed-p", smaller.name, larger.name, "updates_to_50", less=True, seeds=1)
        for smaller, larger in pairwise(EXPERIMENTS.get("fixed-p").variants)
    ),
    note="The rule is the first one again, which was written before the runs. As p = .9 did not reach 90%, the "
    "level became 50% after the results were known, and then all seven had to be in the order that was seen. "
    "Now bounds decide the first rule. The paper trains for 1,000 epochs",
)
register_claim(
    "With p of 1 or more the power-law LSTM hardly learns to copy",
    "PL 5.1",
    *(Between("fixed-p", f"plstm-p{p}-200", high=LEARNED) for p in ("1", "1.5")),
    afterwards=True,
)
register_claim(
    "The power-law LSTM learns to copy wherever its exponents start",
    "PL 3.4",
    *(
        Between("start-p", v.name, low=LEARNED)
        for v in EXPERIMENTS.get("start-p").variants
        if v.home == "start-p" and v.name.endswith("-200")
    ),
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
register_claim(
    "The mean exponent is smaller at T = 500 than at T = 200",
    "PL 5.2",
    Ahead("copy", "plstm-500", "plstm-200", EXPONENT, less=True, margin=(0.41 - 0.19) / 2),
    afterwards=True,
)
register_claim(
    "Units that wait have smaller exponents",
    "PL 5.2",
    *(Between("copy", f"plstm-{T}", WAITING_EXPONENT, high=0.0) for T in (200, 500)),
    afterwards=True,
)
register_claim(
    "The task depends on the units that wait",
    "PL 5.3",
    *(Mean("copy", f"plstm-{T}", NEED, low=0.0) for T in (200, 500)),
    earlier=tuple(Between("copy", f"plstm-{T}", ABLATION, 0.05) for T in (200, 500)),
    note="The earlier mean, over all numbers of silenced units, includes those at which even random ones leave "
    "no more than chance (in the figure), which hides the difference",
)
register_claim(
    "The power-law LSTM is more robust to the loss of random units",
    "PL 5.3",
    *(
        Ahead("copy", f"plstm-{T}", f"{other}-{T}", SHARE_LEFT)
        for T in (200, 500)
        for other in ("lstm", "chrono_lstm")
    ),
    earlier=tuple(
        Ahead("copy", f"plstm-{T}", f"{other}-{T}", ROBUSTNESS)
        for T in (200, 500)
        for other in ("lstm", "chrono_lstm")
    ),
    note="Changed for the same reason as that of the units that wait",
)
register_claim(
    "At T = 200 the chrono LSTM is less robust to the loss of random units than the LSTM",
    "PL 5.3",
    Ahead("copy", "lstm-200", "chrono_lstm-200", SHARE_LEFT),
    afterwards=True,
)
register_claim(
    "Among the gates the fast one learns to copy first",
    "FG figure 4",
    *(
        Ahead("copy", "fast_lstm-500", f"{other}-500", SPEED, less=True)
        for other in ("sigmoid", "refine_lstm", "softsign_lstm")
    ),
    afterwards=True,
)
register_claim(
    "The fast gate learns to copy before the chrono LSTM and JANET",
    "FG figure 4",
    *(
        Ahead("copy", "fast_lstm-500", f"{other}-500", SPEED, less=True)
        for other in ("chrono_lstm", "janet")
    ),
    afterwards=True,
)
register_claim(
    "The softsign gate does not learn to copy",
    "FG figure 4",
    Between("copy", "softsign_lstm-500", high=FAILED),
    afterwards=True,
)
register_claim(
    "NRU diverges when it learns to copy",
    "FG figure 4",
    Diverges("copy", "nru-500"),
    afterwards=True,
)

register_prediction(
    "copy",
    "If the paper's chrono LSTM has the bias log(u) in both bias vectors of torch's nn.LSTM, its time "
    "constants are squared. So with T_max = 300^2 / e chrono reaches 90% after at least twice as many updates "
    "as with 300 (mean over the seeds), and after the power-law LSTM.",
    Times("copy", DOUBLED.name, "chrono_lstm-200", SPEED, 2.0),
    Ahead("copy", "plstm-200", DOUBLED.name, SPEED, less=True),
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
