"""Shows a lake's address in messages.

It is separate from the module that opens lakes, because every command shows settings.
"""

from __future__ import annotations

import re


def shown(url: str) -> str:
    """Return an address without password and query."""
    return re.sub(r"//[^/@\s]*@", "//***@", re.sub(r"\?\S*", "?***", url))
