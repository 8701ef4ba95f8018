"""This program made vN.tsm and vN.json, where N is the version of the format. These files never change; each
version has its own.

python tests/golden/make_file.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from tsm.export.tsm.package import FORMAT, package
from tsm.plugin import build_model
from tsm.plugin.data.vocab import DICT

SYMBOLS = "abcdefg"
TOKENS = [3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 0]
DT = [1.0, 0.5, 2.0, 1.0, 0.25, 3.0, 1.0, 1.0, 7.5, 0.125, 1.0]


def main(folder: Path) -> None:
    torch.manual_seed(20240101)
    model = build_model(
        "plstm_lm", vocab_size=7, decoder_embed_dim=5, decoder_hidden_size=6, decoder_layers=2
    ).eval()
    text = "".join(f"{s} {9 - i}\n" for i, s in enumerate(SYMBOLS)).encode()
    package(model, folder / f"v{FORMAT}.tsm", assets={DICT: text}, tokenizer="char")
    with torch.no_grad():
        logits, state = model.double()(
            torch.tensor([TOKENS]), dt=torch.tensor([DT], dtype=torch.float64)
        )
    expected = {
        "tokens": TOKENS,
        "dt": DT,
        "logits": logits[0].tolist(),
        "state": [{name: value[0].tolist() for name, value in layer.items()} for layer in state],
    }
    (folder / f"v{FORMAT}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
