"""`tsm.nn`: recurrent layers with the arguments, parameters and states of torch's layers."""

from .rnn import RNN
from .torch_layers import GRU, LSTM, PLSTM

__all__ = ["GRU", "LSTM", "PLSTM", "RNN"]
