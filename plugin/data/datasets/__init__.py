"""One file a data set: where its files are, how it is cut, and which counts are known. sources.py
names them."""
