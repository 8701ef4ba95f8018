"""An open-loop load on a server of streams, and other kinds of servers to compare with tsm-serve."""
