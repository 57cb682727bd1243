"""Tells addresses of lakes from paths, and formats them for messages.

It is separate from the module that opens lakes, so that commands that only show settings need not import that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote

_MASK: Final = "***"
_AUTHORITY: Final = re.compile(
    r"(?P<scheme>[a-zA-Z][\w+.-]*)://"
    r"(?:(?P<user>[^/\s]*)@"
    r"|(?P<odd>[^/\s:@]*:(?!\d*[/\s])[^\s@]*)@)"  # a password with a slash; what follows a colon may be the port
)
_TAIL: Final = re.compile(r"(?P<before>\?|://[^\s?#]*#)\S+")
"""Matches the query or the fragment of an address, which may hold a signature or a token."""
_CONTAINERS: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes with the name of a container before the `@`, which is part of the lake's name."""
_LEAST_SECRET: Final = 4
"""Minimum number of characters of a secret that is searched for in a text; shorter ones are parts of any word."""


def is_address(url: str) -> bool:
    """Return whether a lake lies behind an address, such as that of an object store, and not at a path."""
    return "://" in url and not url.startswith("file://")


def shown(url: str) -> str:
    """Return an address, or a text with addresses, with user, password, query and fragment replaced by `***`.

    The container of an `abfss://` address stays; a path is returned as it is.
    """
    if "://" not in url:
        return url
    return _TAIL.sub(rf"\g<before>{_MASK}", _AUTHORITY.sub(_without_user, url))


def without_secrets(text: str, *urls: str) -> str:
    """Return a text, such as an error of a store or of Spark, without the secrets of these addresses.

    A program may write an address in another way than it was given: with `s3a` for `s3`, escaped, or in parts.
    """
    for url in urls:
        text = text.replace(url, shown(url)) if url else text
    return mask(shown(text), secrets_of(*urls))


def secrets_of(*urls: str) -> list[str]:
    """Return the secrets in these addresses, as written, decoded and encoded, the longest first."""
    return sorted({secret for url in urls for secret in _secrets(url)}, key=len, reverse=True)


def mask(text: str, secrets: Sequence[str]) -> str:
    """Return a text with each of these secrets replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, _MASK)
    return text


def _secrets(url: str) -> Iterator[str]:
    found = [_user(match) for match in _AUTHORITY.finditer(url) if not _is_container(match)]
    found += [user.partition(":")[2] for user in found]
    _, _, tail = url.partition("://")
    for part in re.split(r"[?#&;]", tail)[1:]:  # `;` parts the parameters of a server of Spark Connect
        found += [part, part.partition("=")[2]]
    for secret in found:
        for form in (secret, unquote(secret), quote(unquote(secret), safe="")):
            if len(form) >= _LEAST_SECRET:
                yield form


def _user(match: re.Match[str]) -> str:
    return match["user"] or match["odd"] or ""


def _is_container(match: re.Match[str]) -> bool:
    return match["scheme"] in _CONTAINERS and ":" not in _user(match)


def _without_user(match: re.Match[str]) -> str:
    return match[0] if _is_container(match) else f"{match['scheme']}://{_MASK}@"
