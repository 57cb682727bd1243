"""DynamicConfigParts: merged with the declared resources into the effective configuration.

May import: log.core, resources, resources.kinds, resources.reading, resources.validation, runtime, store.engine,
    store.parts, store.rows, text.
"""

from __future__ import annotations
