"""The HTTP API of a node: the table of its routes (`routes.py`), and one application that mounts them.

May import: api.admin, api.admin.bulk, api.admin.callbacks, api.admin.deliveries, api.admin.events, api.admin.history,
    api.admin.resources, api.admin.subscriptions, api.doctor, api.errors, api.framework, api.keys, api.quic,
    api.topics, api.verify, observe, runtime, text.
"""

from __future__ import annotations
