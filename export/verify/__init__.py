"""The proof of an export: is the file that was written the model that was trained?

tensors.py    every number that the file stores, beside the model's
verify.py     questions (checks.py, stream.py) to what runs the file (../common/runner.py), and to the model
              in float64 (reference.py), judged by tolerance.py in float32, by quality.py below it
data.py       what quality is measured on; sample.py: where nobody brings any
alone.py      a file and no model
report.py     the answers
"""
