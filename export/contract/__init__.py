"""What every cell must fulfil, and `tsm-cell check`, which tries it on a cell from anywhere.

`checks.py` lists the checks; each is a function of a cell that raises `Violation` with the place and the size
of the error, or returns what it measured. The tests of the registered cells call the same functions.
"""
