"""Measurements that `routerctl bench` makes: of nodes of its own or of nodes that run, and none counts unverified."""
