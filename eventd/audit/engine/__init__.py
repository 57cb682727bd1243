"""Runs an audit from the survey of the lake to the report, once or continuously, and keeps its state.

May import: audit.arrays, audit.assembly, audit.coverage, audit.receipts, audit.report, audit.review, audit.segments,
    audit.source, audit.spark, audit.verdicts, lake, runtime.
"""
