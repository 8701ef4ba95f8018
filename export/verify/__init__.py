"""Verification of an export: does the written file match the trained model?

tensors.py    every number in the file, compared with the model's
verify.py     runs the checks (checks.py, stream.py) on the file (../common/runner.py) and the model in
              float64 (reference.py); tolerance.py judges float32, quality.py lower precisions
data.py       the data for quality; sample.py makes some if none is given
alone.py      checks a file without a model
report.py     the results
"""
