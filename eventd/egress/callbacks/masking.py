"""Removes from an endpoint's answer what must not be kept: this node's secrets, and the content of events.

Debug pages, proxies and tests echo the request that they got. The part of an answer that is kept is shown to operators
and logged.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from functools import cached_property
from html import unescape
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from eventd.egress.loop.sink import LONGEST
from federation.keys import Key

MASK: Final = "***"
SHORT: Final = 8
"""Secrets with fewer characters are only masked as whole words: otherwise every `a` would be one."""
_EXAMINED: Final = 4096
"""Number of characters of an answer that are examined."""
_PIECE: Final = 16
ECHO: Final = 2 * _PIECE
"""Minimum number of consecutive characters common to answer and request that count as an echo of the request."""
_SEARCHES: Final = 64
"""Maximum number of pieces of an answer that are searched for in the request. Nothing else runs during a search, and a
request may be large."""
_NO_SECRET: Final = "x"
"""The fixed password in the credentials of Routemaster subscribers, whose uuid is the user. It is the same everywhere,
so it is no secret."""


class MaskedSecrets(Protocol):
    """Interface of what is masked: the keys that sign, and the value of the header `Authorization`, if any."""

    @property
    def keys(self) -> Sequence[Key]: ...

    @property
    def authorization(self) -> str | None: ...


class _NoSecrets:
    """A callback without secrets."""

    keys: Sequence[Key] = ()
    authorization: str | None = None


NO_SECRETS: Final = _NoSecrets()


class AnswerMask:
    """Masks the secrets of one callback, in the forms in which servers write them, and the user info of its URL."""

    def __init__(self, secrets: MaskedSecrets, url: str) -> None:
        self._secrets = secrets
        self._url = url

    @cached_property
    def _forms(self) -> list[str]:
        """The texts of all secrets, the longest first. Few callbacks need them: most answers are empty."""
        found = {*_of_header(self._secrets.authorization or ""), *_of_url(self._url)}
        for key in self._secrets.keys:
            found.update(_of_key(key))
        forms = {
            form for secret in found - {"", _NO_SECRET} for form in (secret, _unescaped(secret), quote(secret, safe=""))
        }
        return sorted(forms, key=len, reverse=True)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return re.compile("|".join(map(_pattern, self._forms))) if self._forms else None

    def apply(self, text: str, request: bytes = b"", *, is_cut: bool = False) -> str:
        """Return the beginning of an answer's text without secrets, and without what repeats the body of the `request`.

        The text is long enough for `plain`, which cuts it. `is_cut`: the answer was cut at the end of `text`, perhaps
        within a secret.
        """
        if not text:
            return ""
        longest = len(self._forms[0]) if self._forms else 0
        text = _unescaped(text)
        examined = text[: _EXAMINED + longest]
        unfinished = longest if is_cut or len(examined) < len(text) else 0
        text = self._without_secrets(examined, unfinished)[:_EXAMINED]
        return _without_echo(text, request) if len(text) >= ECHO else text

    def _without_secrets(self, text: str, unfinished: int) -> str:
        """Return the text with its secrets masked, and without its last `unfinished` characters, in which a secret may
        begin."""
        parts, at = list[str](), 0
        for found in self._pattern.finditer(text) if self._pattern is not None else ():
            parts += [text[at : found.start()], MASK]
            at = found.end()
        end = max(at, len(text) - unfinished)
        return "".join([*parts, text[at:end]])


def _unescaped(text: str) -> str:
    """Return a text with quotes and slashes that are escaped for JSON, and characters that are escaped for HTML."""
    return unescape(text.replace('\\"', '"').replace("\\/", "/"))


def _pattern(secret: str) -> str:
    found = re.escape(secret)
    return found if len(secret) >= SHORT else rf"(?<!\w){found}(?!\w)"


def _of_header(authorization: str) -> Iterator[str]:
    """Yield the secrets in the value of a header `Authorization`."""
    scheme, _, credential = authorization.partition(" ")
    yield credential
    yield credential.rstrip("=")
    if scheme == "Basic":
        pair = b64decode(credential).decode("utf-8", "replace")
        yield pair
        yield from pair.split(":", 1)


def _of_url(url: str) -> Iterator[str]:
    """Yield the user and the password in a URL, as they are written and as they are meant."""
    try:
        info = urlsplit(url).netloc.rpartition("@")[0]
    except ValueError:
        return
    yield info
    for part in info.split(":", 1):
        yield part
        yield unquote(part)


def _of_key(key: Key) -> Iterator[str]:
    """Yield the texts of a signing key: base64 in both alphabets, with and without padding, and hexadecimal."""
    secret = key.secret or (b"" if key.private is None else key.private.private_bytes_raw())
    for coded in (b64encode(secret).decode(), urlsafe_b64encode(secret).decode()):
        yield coded
        yield coded.rstrip("=")
    yield secret.hex()
    if secret.isascii() and secret.decode("ascii").isprintable():
        yield secret.decode("ascii")


def _without_echo(text: str, request: bytes) -> str:
    """Return the text without its runs of `ECHO` and more characters that the request contains, as far as it is kept.

    After `_SEARCHES` searches, the rest of the text is dropped, because it may be an echo.
    """
    sent = request.decode("utf-8", "replace")
    parts: list[str] = []
    kept = done = at = 0
    for _ in range(_SEARCHES):
        if kept + at - done >= LONGEST + _PIECE or at + _PIECE > len(text):
            return "".join([*parts, text[done:]])[:LONGEST]
        place = sent.find(text[at : at + _PIECE])
        if place < 0:
            at += _PIECE
            continue
        begin, end = _extended(text, sent, at, place, done)
        if end - begin >= ECHO:
            parts += [text[done:begin], MASK]
            kept += begin - done + len(MASK)
            done = end
        at = max(end, at + _PIECE)
    return "".join([*parts, text[done:at]])[:LONGEST]


def _extended(text: str, sent: str, at: int, place: int, least: int) -> tuple[int, int]:
    """Return the range of the longest run of characters around index `at` in the text that is also in `sent`, around
    index `place`."""
    begin, shift = at, place - at
    while begin > least and begin + shift > 0 and text[begin - 1] == sent[begin - 1 + shift]:
        begin -= 1
    end = at + _PIECE
    while end < len(text) and end + shift < len(sent) and text[end] == sent[end + shift]:
        end += 1
    return begin, end
