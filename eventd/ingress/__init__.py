"""What peers send: proven, admitted, and stored with its mark and receipt.

May import: log.core, log.delivery, resources, runtime, store.engine, store.rows.
"""

from __future__ import annotations
