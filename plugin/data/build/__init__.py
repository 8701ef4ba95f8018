"""From a corpus as published to a data folder: what `tsm-preprocess` runs."""
