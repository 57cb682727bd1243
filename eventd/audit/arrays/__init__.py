"""Columns of ledger rows as arrays of numbers: their sums, histograms and hashes, and the comparison of two rows.

May import: audit.report, runtime.
"""
