"""Which rows the ledgers certainly hold, and where they end, have holes or were rolled back.

May import: audit.receipts, audit.report, audit.segments, lake, runtime, text.
"""
