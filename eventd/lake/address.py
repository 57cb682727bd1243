"""Formats the address of a lake for messages.

It is separate from the module that opens lakes, so that commands that only show settings need not import that.
"""

from __future__ import annotations

import re


def shown(url: str) -> str:
    """Return an address with its user, password and query replaced by `***`."""
    return re.sub(r"//[^/@\s]*@", "//***@", re.sub(r"\?\S*", "?***", url))
