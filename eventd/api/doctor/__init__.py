"""Doctor: reads the state of a node, checks it, proposes a plan and executes its safe part.

May import: api.admin, api.admin.deliveries, api.admin.resources, api.framework, dynamic, egress, egress.loop, groups,
    log.core, log.cursors, log.delivery, log.history, log.retention, log.topics, log.witnesses, net, resources,
    resources.kinds, runtime, settings, store.engine, store.rows, streams, text, tls, tracing, witnessing.
"""

from __future__ import annotations
