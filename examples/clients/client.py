"""Talk to a server and continue where the last run ended: the server remembers what it has answered.

    tsm-serve text8.tsm                                                  in another terminal
    python examples/clients/client.py ann "the history of "             what comes next
    TSM_TOKEN=tsm-... python examples/clients/client.py ann "the king "  with a token

Standard library only. An unanswered text is sent again with the same request_id, so it is read exactly once,
whatever happens to the server and the network. This also holds if this program is killed: run it both times
with TSM_REQUEST set to the same name.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

LATE = (429, 500, 502, 503, 504)  # statuses of a server that is too busy, or has gone down


def ask(url: str, **body: Any) -> Any:
    """One answer, after as many tries as it takes."""
    request = urllib.request.Request(url, json.dumps(body).encode())
    if token := os.environ.get("TSM_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    wait = 0.05
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code not in LATE:
                raise SystemExit(f"error: {json.load(error)['detail']}") from None
            wait = float(error.headers.get("Retry-After", wait))
        except (OSError, http.client.HTTPException):
            wait = min(2 * wait, 5.0)
        time.sleep(wait)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("session", help="its id: letters, digits, - _ . ~")
    parser.add_argument("text", help="to read")
    parser.add_argument("--server", default="http://localhost:8080")
    parser.add_argument("--n", type=int, default=40, help="tokens to generate (default 40)")
    args = parser.parse_args()
    name = os.environ.get("TSM_REQUEST") or uuid.uuid4().hex
    answer = ask(
        f"{args.server}/v1/sessions/{args.session}/generate",
        text=args.text, n=args.n, temperature=0.5, request_id=name,
    )  # fmt: skip
    print(f"{args.text}{answer['text']}")
    print(f"[the session is at {answer['position']} tokens]")


if __name__ == "__main__":
    main()
