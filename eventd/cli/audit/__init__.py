"""routerctl audit: run, stream, sql, acknowledge, prepare, schema, verify-report, generate.

May import: api.framework, audit.assembly, audit.engine, audit.generate, audit.receipts, audit.report, audit.review,
    audit.spark, audit.views, cli.gateway, cli.program, cli.terminal, lake, runtime, text.
"""
