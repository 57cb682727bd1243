"""Assembles the report of an audit and its tables, and writes them to the output folder.

May import: audit.coverage, audit.receipts, audit.report, audit.report.html, audit.segments, audit.verdicts, lake,
    runtime, text.
"""
