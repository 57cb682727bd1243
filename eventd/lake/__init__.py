"""The lake: segments of ledger rows in a folder or an object store, with manifests.

May import: runtime, text.
"""

from __future__ import annotations
