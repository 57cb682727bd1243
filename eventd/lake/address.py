"""Tells addresses of lakes from paths, and formats them for messages.

It is separate from the module that opens lakes, so that commands that only show settings need not import that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote

_MASK: Final = "***"
_WORD: Final = re.compile(r"\S+")
_USER: Final = re.compile(r"(?P<container>(?<![\w+.-])(?:abfss?|wasbs?))?://(?P<user>[^/\s:@]*:\S*|[^/\s]*)@")
"""Matches the user of an address, up to the last `@` where a colon precedes: a password may have a slash, and digits
after a colon may be the port or its beginning. The schemes name a container before the `@`, a part of the lake's name.
"""
_QUERY: Final = re.compile(r"\?\S+")
"""Matches the query of an address, which may hold a signature or a token."""
_LEAST_SECRET: Final = 4
"""Minimum number of characters of a secret that is searched for in a text; shorter ones are parts of any word."""
_FLAGS: Final = frozenset({"true", "false"})
"""Values in a query that are never treated as secrets."""


def is_address(url: str) -> bool:
    """Return whether a lake lies behind an address, such as that of an object store, and not at a path."""
    return "://" in url and not url.startswith("file://")


def shown(url: str) -> str:
    """Return an address, or a text with addresses, with user, password, query and fragment replaced by `***`.

    The container of an `abfss://` address is kept; a path is returned as it is.
    """
    if "://" not in url:
        return url
    return _QUERY.sub(f"?{_MASK}", _WORD.sub(_shown_word, url))


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


def mask_addresses(text: str, secrets: Sequence[str]) -> str:
    """Return a text with the secrets replaced by `***` in the addresses that contain one; all else stays as it is.

    It is for data, in which a secret may also be a common word.
    """
    if "://" not in text:
        return text
    return _WORD.sub(lambda word: _masked_word(word[0], secrets), text)


def _masked_word(word: str, secrets: Sequence[str]) -> str:
    if "://" not in word or not any(secret in word for secret in secrets):
        return word
    return mask(shown(word), secrets)


def _secrets(url: str) -> Iterator[str]:
    """Yield the secrets of an address: user and password, the password alone, the query and the fragment."""
    if "://" not in url:
        return
    found = []
    before, after = _parted(url)
    for user in (match["user"] for match in _USER.finditer(before)):
        password = user.partition(":")[2]
        # A user alone is a name, and may be a word of any text: only an address with it is looked for.
        found += [f"//{user}@", *([user, password] if password else [])]
    # A server of Spark Connect has its parameters after `;`, which is a character of a path elsewhere.
    separators = "[?#&;]" if url.startswith("sc://") else "[?#&]"
    beginning = separators.replace("&", "")
    tail = re.split(beginning, _USER.sub("", before) + after, maxsplit=1)[1:]
    for part in (part for text in tail for part in re.split(separators, text)):
        found += [part, part.partition("=")[2]]
    for secret in found:
        for form in (secret, unquote(secret), quote(unquote(secret), safe="")):
            if len(form) >= _LEAST_SECRET and form not in _FLAGS:
                yield form


def _shown_word(match: re.Match[str]) -> str:
    """Return a word with user and fragment of its addresses masked."""
    word = match[0]
    if "://" not in word:
        return word
    before, after = _parted(word)
    word = _USER.sub(_without_user, before) + after
    begin = word.find("://")
    address, mark, fragment = word[begin:].partition("#")
    return f"{word[:begin]}{address}{mark}{_MASK if fragment else ''}"


def _parted(text: str) -> tuple[str, str]:
    """Return the part of a text up to its last `@`, and the rest.

    Only the first part is searched for users, in linear time.
    """
    end = text.rfind("@") + 1
    return text[:end], text[end:]


def _without_user(match: re.Match[str]) -> str:
    container = match["container"] or ""
    return match[0] if container and ":" not in match["user"] else f"{container}://{_MASK}@"
