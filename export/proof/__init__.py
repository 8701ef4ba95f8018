"""The proof of an export: is the file that was written the model that was trained?

verify.py puts the questions of checks.py to a runner (runner.py), which runs the file, and to the model in
float64 (reference.py); report.py holds the answers. data.py scores both on real data.
"""
