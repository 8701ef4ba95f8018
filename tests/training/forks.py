"""Not a test: starts training runs for test_stop.py. It has loaded torch already, so each begins at once.

A line on stdin is the flags of one as JSON; it answers with the process's number, and at its end with
its exit code.
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
