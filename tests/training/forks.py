"""Not a test: starts training runs for test_stop.py. It has already loaded torch, so each run starts
immediately.

Each line on stdin holds the flags of a run as JSON; the replies are the run's process id and, when it ends, its
exit code.
"""

from __future__ import annotations

import json
import os
import sys

import tsm.plugin.train.run  # noqa: F401  loads torch
from tsm.plugin.cli.train import main

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os._exit(main(json.loads(line)))
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
