"""The stages of an audit, from the survey of the lake to the report.

May import: audit.report, audit.report.html, audit.review, audit.source, audit.spark, lake, resources,
    resources.kinds, runtime, text.
"""
