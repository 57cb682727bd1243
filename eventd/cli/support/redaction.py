"""Removes everything that may be secret from answers of operations and from lines of logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from eventd.text.user_info import QUOTED_WORD, without_user_info

REMOVED: Final = "(removed)"
_FREE_TEXTS: Final = frozenset({"headers", "env", "annotations"})
"""Members whose values are texts that a user wrote: headers of requests, variables of plugins, annotations."""
_NAMES: Final = (
    r"secret|password|passwd|passphrase|token|bearer|credential|community|psk"
    r"|(?:api|private|pre[_-]?shared|shared|access|encryption|signing|master|root)[_-]?key"
)
_SECRET: Final = re.compile(rf"{_NAMES}|cookie", re.I)
"""Names of members that hold a secret, also in kinds that this version does not know."""
_NAMES_A_FILE: Final = re.compile(r"(?:file|path|ref|id|ids|at|count|ttl|tokens)$", re.I)
"""Suffixes of names whose values say where or when a secret is, and are not the secret itself."""
_QUERY: Final = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s\"'<>?#]*)[?#][^\s\"'<>]*", re.I)
_HEADER: Final = re.compile(r"(?i)\b(authorization|cookie|set-cookie|eventd-signature)(\"?\s*[:=]\s*\"?)[^\"\r\n]+")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_ASSIGNED: Final = re.compile(
    rf"""(?ix)(?<![\w.-])(?<!\bnot\sa\s)(?=--key|[\w.-]*?(?:{_NAMES}))
    ([\w.-]++)(\\?["']?\s*+[:=]\s*+|(?<=--key)\s++)
    (\\"(?:[^"\\]|\\\\.)*+(?:\\")? | "(?:[^"\\]|\\.)*+"? | '(?:[^'\\]|\\.)*+'? | [^\s"',}}]+)"""
)
"""A name and its value: in quotes, which may be escaped within a text of JSON, or one word. No character is given back,
so that long lines take linear time.
"""
_SHORTEST_KEY: Final = 8
"""Minimum length of a key: a shorter word after `--key` is part of a sentence."""
_KEY: Final = re.compile(r"\b(evk|whsec|whsk)_[A-Za-z0-9+/=_.-]{8,}")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.S)
"""Matches a private key in PEM. If its end is cut off, it matches all of the remaining text."""


def redact(value: Any, name: str = "") -> Any:
    """Return a value of JSON without secrets; `name` is that of the member that holds it.

    Texts lose user info, query and fragment of the URLs in them. The values of members whose names suggest a secret,
    and of the members in `_FREE_TEXTS`, are replaced.
    """
    if isinstance(value, Mapping):
        if name in _FREE_TEXTS:
            return {key: REMOVED for key in value}
        return {key: redact(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [redact(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    if value and _SECRET.search(name) and not _NAMES_A_FILE.search(name):
        return REMOVED
    return redact_text(value)


def redact_text(text: str) -> str:
    """Return a text, such as a line of a log, without what looks like a secret."""
    text = _PEM.sub(REMOVED, text)
    text = without_user_info(text, REMOVED, QUOTED_WORD)
    text = _QUERY.sub(rf"\1?{REMOVED}", text)
    text = _HEADER.sub(rf"\1\2{REMOVED}", text)
    text = _BEARER.sub(rf"\1 {REMOVED}", text)
    return _KEY.sub(rf"\1_{REMOVED}", _ASSIGNED.sub(_assigned, text))


def _assigned(found: re.Match[str]) -> str:
    """Return `name=value` with the value removed and its quotes kept, unless the name says where a secret is."""
    name, between, value = found.groups()
    if _NAMES_A_FILE.search(name) or (between.isspace() and len(value) < _SHORTEST_KEY):
        return found[0]
    quote = next((mark for mark in ('\\"', '"', "'") if value.startswith(mark)), "")
    return f"{name}{between}{quote}{REMOVED}{quote}"
