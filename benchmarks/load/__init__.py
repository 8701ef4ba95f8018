"""An open-loop load generator for streaming servers, and other servers to compare tsm-serve with."""
