"""tsm (time-scale models): train, export and stream recurrent networks with long memory."""

__version__ = "0.1.0"
