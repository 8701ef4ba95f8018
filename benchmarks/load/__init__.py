"""An open-loop load on a server of streams, and servers of other kinds to put beside tsm-serve."""
