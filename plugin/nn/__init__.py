"""Recurrent layers with the arguments, parameters and states of torch's: `tsm.nn`."""

from .rnn import RNN
from .torch_layers import LSTM, PLSTM

__all__ = ["LSTM", "PLSTM", "RNN"]
