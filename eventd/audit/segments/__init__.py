"""What an audit reads from segments, in Spark's tasks: sums of rows, summaries of small ledgers, and marks of rows.

May import: audit.arrays, audit.receipts, audit.report, audit.spark, lake, runtime.
"""
