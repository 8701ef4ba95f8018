"""The papers' experiments: `tsm-reproduce` runs them and writes docs/results.md.

From the bottom up: recipe, store (a summary), data, stand_in, history < measures/ < runs/ (one run, or many);
rows (published and measured values) < drawings, figures, page.
"""
