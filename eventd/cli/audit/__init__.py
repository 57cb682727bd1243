"""routerctl audit: run, stream, sql, generate.

May import: api.framework, audit.engine, audit.generate, audit.report, audit.spark, audit.views, cli.gateway,
    cli.program, cli.terminal, runtime, text.
"""
