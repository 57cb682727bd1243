"""The parts of `routerd-eventd serve` outside of the node itself: workers, standby, signals, the service manager.

May import: api, api.keys, api.listener, api.quic, api.routemaster, cli.gateway, cli.program, cli.terminal, lake,
    log.core, net, node, observe, processes, quic, resources, resources.kinds, runtime, settings, store.engine,
    store.rows, store.schema, text, tls, tracing.
"""
