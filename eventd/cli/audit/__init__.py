"""routerctl audit: run, stream, generate.

May import: api.framework, audit.engine, audit.generate, audit.report, audit.spark, cli.gateway, cli.program,
    cli.terminal, runtime, text.
"""
