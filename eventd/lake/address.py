"""Tells addresses of lakes from paths, and formats them for messages.

It is separate from the module that opens lakes, so that commands that only show settings need not import that.
"""

from __future__ import annotations

import re


def is_address(url: str) -> bool:
    """Return whether a lake lies behind an address, such as that of an object store, and not at a path."""
    return "://" in url and not url.startswith("file://")


def shown(url: str) -> str:
    """Return an address with its user, password and query replaced by `***`."""
    return re.sub(r"//[^/@\s]*@", "//***@", re.sub(r"\?\S*", "?***", url))
