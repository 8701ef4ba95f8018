"""The experiments, one file per family. To add a family, add a file here and a line in catalogue.py."""
