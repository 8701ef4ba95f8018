"""How long torch's threads wait actively for each other."""

from __future__ import annotations

import os
import sys

ROUNDS = 30_000


def spin_briefly() -> None:
    """To be called before torch is imported; does nothing afterwards.

    GNU OpenMP, which torch brings, looks 300,000 times whether the other threads are ready before it sleeps: 17
    ms on an Intel processor, where a pause takes 140 cycles. If another process runs on the cores, such a
    thread often waits for one that is not running, and takes its time. Training on two cores with one or two
    busy processes beside it took 2 to 15 times as long as with this number; on idle cores it is the same.
    """
    given = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    if "torch" not in sys.modules and not given:
        os.environ["GOMP_SPINCOUNT"] = str(ROUNDS)
