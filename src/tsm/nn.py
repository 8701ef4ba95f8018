"""Recurrent layers with torch's arguments that run on tsm's kernels (docs/layer.md). Needs torch: the extra
`train`.

>>> import torch
>>> import tsm.nn
>>> lstm = tsm.nn.LSTM(10, 20, num_layers=2, bidirectional=True)   # as torch.nn.LSTM
>>> output, (h_n, c_n) = lstm(torch.randn(7, 3, 10))
>>> output.shape, h_n.shape
(torch.Size([7, 3, 40]), torch.Size([4, 3, 20]))
"""

from .plugin.nn import GRU, LSTM, PLSTM, RNN

__all__ = ["GRU", "LSTM", "PLSTM", "RNN"]
