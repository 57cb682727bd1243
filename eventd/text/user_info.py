"""Masks user and password of the URLs in a text."""

from __future__ import annotations

import re
from typing import Final

_USER_INFO: Final = re.compile(r"://(?!USER(?::PASSWORD)?@$)(?:[^/\s:@]*:\S*|[^/\s]*)@")
"""Matches up to the last `@` where a colon precedes: a password may contain a slash, and digits after a colon may be
the port or the beginning of a password. `USER` is how hints name the place of the user.
"""
WORD: Final = re.compile(r"\S+")
QUOTED_WORD: Final = re.compile(r"[^\s\"'<>]+")
"""Words of lines with values in quotes, such as JSON: what follows the closing quote is another word."""


def without_password(url: str) -> str:
    """Return the URL of a database with its password masked, up to the last `@`, also one that is escaped.

    The password may contain a slash or an `@`, which SQLAlchemy takes for the host's end and escapes in the rest.
    """
    if url.startswith("sqlite:"):
        return url
    return re.sub(r"://([^:]*):.*(?:@|%40)", r"://\1:***@", url, count=1, flags=re.DOTALL)


def without_user_info(text: str, mask: str = "***", word: re.Pattern[str] = WORD) -> str:
    """Return a text in which `mask` replaces user and password of each URL."""
    if "://" not in text or "@" not in text:
        return text
    return word.sub(lambda found: _masked(found[0], mask), text)


def _masked(word: str, mask: str) -> str:
    """Mask up to the last `@` of a word: a search beyond it would take quadratic time."""
    end = word.rfind("@") + 1
    return _USER_INFO.sub(lambda _: f"://{mask}@", word[:end]) + word[end:]
