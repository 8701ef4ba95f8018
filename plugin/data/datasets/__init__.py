"""One file per data set: where its files are, how it is split, and which counts are known. sources.py lists the
data sets by name."""
