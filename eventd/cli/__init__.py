"""The two programs: `routerd-eventd`, the node, and `routerctl`, which operates one.

May import: api.listener, cli.assets, cli.audit, cli.bench, cli.callbacks, cli.console, cli.daemon, cli.demo,
    cli.federation, cli.gateway, cli.history, cli.lake, cli.node, cli.plugins, cli.program, cli.resources,
    cli.routemaster, cli.simulate, cli.streams, cli.support, cli.terminal, cli.top, cli.topics, log.core, node, observe,
    runtime, settings, store.engine, store.schema.
"""

from __future__ import annotations
