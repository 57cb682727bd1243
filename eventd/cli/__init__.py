"""The two programs: `routerd-eventd`, the node, and `routerctl`, which operates one.

May import: cli.daemon, cli.demo, cli.gateway, cli.program, cli.terminal, log.core, node, observe, runtime, settings,
    store.engine, store.schema.
"""

from __future__ import annotations
