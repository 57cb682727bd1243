"""Removes what may be secret from answers of operations and from lines of logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REMOVED: Final = "(removed)"
_FREE_TEXTS: Final = frozenset({"headers", "env", "annotations"})
"""Members whose values are texts that a user wrote: headers of requests, variables of plugins, annotations."""
_SECRET: Final = re.compile(r"secret|password|passphrase|token|bearer|credential|cookie|api_?key|private_?key", re.I)
_NAMES_A_FILE: Final = re.compile(r"(?:file|path|ref|id|ids|at|count|ttl|tokens)$", re.I)
"""Ends of names that hold where a secret is, or when, but not the secret."""
_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s\"'<>]+@")
_QUERY: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s\"'<>?#]*)[?#][^\s\"'<>]*", re.I)
_HEADER: Final = re.compile(r"(?i)\b(authorization|cookie|set-cookie|eventd-signature)(\"?\s*[:=]\s*\"?)[^\"\r\n]+")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_ASSIGNED: Final = re.compile(
    r"(?i)\b([A-Za-z0-9_.-]*(?:secret|password|passphrase|token|api_?key)[A-Za-z0-9_.-]*)(\"?\s*[:=]\s*\"?)([^\s\"',}]+)"
)


def redact(value: Any, name: str = "") -> Any:
    """Return a value of JSON without secrets; `name` is that of the member that holds it.

    Texts lose user info, query and fragment of the URLs in them. A member whose name tells of a secret, and the free
    texts of `_FREE_TEXTS`, are replaced.
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
    text = _USER_INFO.sub(f"{REMOVED}@", text)
    text = _QUERY.sub(rf"\1?{REMOVED}", text)
    text = _HEADER.sub(rf"\1\2{REMOVED}", text)
    text = _BEARER.sub(rf"\1 {REMOVED}", text)
    return _ASSIGNED.sub(_assigned, text)


def _assigned(found: re.Match[str]) -> str:
    """Return `name=value` with the value removed, unless the name tells where a secret is."""
    return found[0] if _NAMES_A_FILE.search(found[1]) else f"{found[1]}{found[2]}{REMOVED}"
