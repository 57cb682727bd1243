"""The world that simulated nodes live in: time, processes, threads, network, disks, clocks and machines.

May import: log.core, net, node, plugins.contract, plugins.run, processes, runtime, settings, store.engine,
    store.schema.
"""
