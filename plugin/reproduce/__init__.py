"""The papers' experiments: `tsm-reproduce` runs them and writes docs/results.md.

From the bottom up: recipe, store (a summary), data, stand_in,
plan, halt, history < measures, programs < runner (one run) < workers (many); rows (published and measured
values) < drawings, figures, page.
"""
