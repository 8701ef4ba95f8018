"""The experiments, one file per family. A new family is a file here and a line in catalogue.py."""
