"""The verdicts on events and batches whose sums differ between two nodes, and the figures of the pairs.

May import: audit.arrays, audit.coverage, audit.receipts, audit.report, audit.segments, lake, runtime, text.
"""
