"""A user's own table of sequences of numbers, for the tests of tsm-preprocess."""

from __future__ import annotations

CSV = """id,gap,a,b,kind
u,1,0.5,1,x
u,0.25,-0.5,2,x
v,2,1.5,3,y

v,1,2.5,4,y
v,0.5,3.5,5,y
"""
LABELLED = ("--sequence-column", "id", "--dt-column", "gap", "--label-column", "kind")
