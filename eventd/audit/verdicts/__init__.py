"""The verdicts on events whose sums differ between two nodes, and the figures of the pairs.

May import: audit.arrays, audit.coverage, audit.report, audit.segments, lake, runtime, text.
"""
