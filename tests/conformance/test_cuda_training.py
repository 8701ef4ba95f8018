"""Training with the fused kernels on a GPU follows the loss curve of the reference."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tolerances import assert_close
from tsm.plugin import build_model

pytestmark = pytest.mark.gpu

UPDATES, V, B, T, H = 200, 7, 8, 8, 48
DTYPES = ["float32", "bfloat16"]


def text(device):
    """[UPDATES, B, T + 1] symbols: each is determined by the one two steps before it, except that one in eight
    is random."""
    draw = torch.Generator().manual_seed(2)
    out = torch.randint(V, (B, UPDATES * T + 1), generator=draw)
    noise = torch.rand(out.shape, generator=draw) < 1 / 8
    for t in range(2, out.shape[1]):
        out[:, t] = torch.where(noise[:, t], out[:, t], (3 * out[:, t - 2] + 1) % V)
    return out.unfold(1, T + 1, T).transpose(0, 1).contiguous().to(device)


def losses(cell, backend, device, dtype, weights=None):
    """(the loss before each update, the initial weights)."""
    torch.manual_seed(4)
    sizes = {"decoder_embed_dim": 16, "decoder_hidden_size": H}
    model = build_model("lstm_lm", vocab_size=V, cell=cell.name, backend=backend, **sizes)
    if weights is not None:
        model.load_state_dict(weights)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state, curve = None, []
    for part in text(device):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
            logits, state = model(part[:, :-1], state=state)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        state = [{name: s.detach() for name, s in layer.items()} for layer in state]
        curve.append(loss.detach())
    return torch.stack(curve).cpu(), start


@pytest.mark.parametrize("dtype", DTYPES)
def test_training_follows_the_reference(compiled_cell, dtype):
    expected, weights = losses(compiled_cell, "reference", "cpu", dtype)
    found, _ = losses(compiled_cell, "fused", "cuda", dtype, weights)
    assert expected[-20:].mean() < 0.9 * expected[:20].mean(), "the reference does not learn"
    assert_close(found, expected, "cuda_training", dtype, "loss")
