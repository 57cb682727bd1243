"""The world that simulated nodes live in: time, processes, threads, network, disks, clocks and machines.

May import: log.core, net, node, runtime, settings, store.engine, store.schema.
"""
