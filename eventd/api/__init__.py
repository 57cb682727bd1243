"""The HTTP API of a node: one application that mounts every route.

May import: api.admin, api.bodies, api.errors, api.framework, api.listener, api.topics, observe, runtime.
"""

from __future__ import annotations
