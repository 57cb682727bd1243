"""A lake's address in messages. Apart from what opens lakes: settings are shown by every command."""

from __future__ import annotations

import re


def shown(url: str) -> str:
    """An address as it may be shown: no password, no query."""
    return re.sub(r"//[^/@\s]*@", "//***@", re.sub(r"\?\S*", "?***", url))
