"""Replaces names and addresses in a bundle: a name always by the same word, which is computed with a key that is not
kept."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from eventd.cli.support.naming import fields_of, names_in_text, names_of_object, router_parts
from eventd.resources.kinds.registry import KINDS
from eventd.runtime.chance import Chance
from eventd.text.user_info import QUOTED_WORD, without_user_info

_NAMES: Final = frozenset(
    {
        *("name", "node", "nodeName", "group", "groupRef", "groups", "peer", "peers", "source", "sources", "topic"),
        *("topics", "router", "routers", "resource", "callback", "subscription", "plugin", "pluginRef", "tenant"),
        *("stream", "queue", "caller", "user", "host", "hostname", "key", "owner", "member", "targetGroup"),
        *("targetPeer", "targetResource", "endpoint", "url", "address", "remote", "server", "subject"),
        "subjectPrefixes",
    }
)
"""Members that hold a name, an address or a URL of the operator."""
_KEYED_BY_NAMES: Final = frozenset({"labels", "annotations", "headers", "env", "topics", "groups", "peers", "rates"})
"""Members that are mappings whose keys are names chosen by the operator."""
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)|\[[0-9A-Fa-f:.]+\]"
    r"|[0-9A-Fa-f]*::?(?:[0-9A-Fa-f:.]*[0-9A-Fa-f])?+(?:::)?(?!\w|[.:]\w))"
)
"""An address, perhaps before a port or the end of a sentence."""
_HOST: Final = re.compile(r"(?<=://)[^/:\s\"'<>\[\]]+")
_QUOTED: Final = re.compile(r'(?<==")[^"\n]*(?=")')
_REPLACED: Final = re.compile(r"(?:x|ip)-[0-9a-f]{10}")
_OBJECTS: Final = frozenset({"object", "objects"})
"""Members that hold the object of an action: a noun or a kind, and a name."""
_SHORTEST: Final = 2
_COMMON: Final = frozenset(
    {
        *("ok", "all", "true", "false", "none", "v1", "v2", "auto", "push", "running", "federation", "group", "peer"),
        *("callback", "subscription", "topic", "queue", "router", "resend", "database", "socket", "key", "node", "api"),
        *("console", "user", "uid", "command", "session", "name", "error", "state", "reason", "local", "local socket"),
        *("localhost", "default", "root", "eventd", "routerd-eventd", "event", "events", "record", "records", "topics"),
        *("peers", "groups", "log", "plugin", "resource", "backing-off", "blocked", "paused", "failed", "pending"),
        *("delivered", "unreachable", "warning", "info", "admin", "read", "write", "look", "retry", "url", "http"),
        *("https", "source", "endpoint", "dynamicconfigpart", *(name.lower() for name in KINDS)),
    }
)
"""Words of the product, and names that every machine has. They are not replaced, because they reveal nothing about the
operator."""
_FIXED_IN_LOGS: Final = frozenset({"ts", "level", "logger"})
"""Members of a line of a log whose values are words of the product."""


class Pseudonyms:
    """Collects names, and replaces them in texts and values."""

    def __init__(self, chance: Chance) -> None:
        self._key = chance.token(32)
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: Any, name: str = "", *, nameless: bool = False) -> None:
        """Note the names that a value of JSON holds. With `nameless`, its members `name` hold words of the product."""
        if isinstance(value, Mapping):
            if name in _KEYED_BY_NAMES:
                self._add(value)
            for key, inner in value.items():
                self.learn(inner, str(key), nameless=nameless)
        elif isinstance(value, list):
            for inner in value:
                self.learn(inner, "" if isinstance(inner, Mapping) else name, nameless=nameless)
        elif isinstance(value, str):
            self._add(names_in_text(value))
            if name in _OBJECTS:
                self._add(names_of_object(value))
            elif name in _NAMES and not (nameless and name == "name"):
                self._add(part for each in _parts(value) for part in router_parts(each))

    def learn_text(self, text: str) -> None:
        """Note the names that the lines of a log or the labels of metrics hold."""
        for name, value in fields_of(text):
            self.learn(value, name, nameless=True)

    def _add(self, words: Iterable[str]) -> None:
        self._known |= {word for word in words if len(word) >= _SHORTEST and word.lower() not in _COMMON}
        self._pattern = None

    def value(self, value: Any, name: str = "", *, fixed: frozenset[str] = frozenset()) -> Any:
        """Return a JSON value with all names replaced; keys are replaced only in mappings by name.

        Members in `fixed` hold only words of the product and are not replaced.
        """
        if isinstance(value, Mapping):
            named = name in _KEYED_BY_NAMES
            return {
                self.text(key) if named else key: inner if key in fixed else self.value(inner, str(key), fixed=fixed)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self.value(inner, fixed=fixed) for inner in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Return a text with names, host names of URLs, and IP addresses replaced, without user info of URLs.

        Names are found in any case, because the case of host names has no meaning.
        """
        text = without_user_info(text, "", QUOTED_WORD).replace("://@", "://")
        text = _HOST.sub(lambda found: self._address(found[0]) or self._word(found[0]), text)
        text = _ADDRESS.sub(lambda found: self._address(found[0]) or found[0], text)
        if self._pattern is None:
            longest_first = sorted(self._known, key=lambda word: (-len(word), word))
            words = "|".join(map(re.escape, longest_first)) or r"(?!)"
            self._pattern = re.compile(rf"(?<![\w-])(?:{words})(?!\w|-(?!>))", re.I)  # `a->b` is two names
        return self._pattern.sub(lambda found: self._address(found[0]) or self._word(found[0]), text)

    def log(self, text: str) -> str:
        """Return lines of a log with names replaced; in a line of JSON, only its values are changed."""
        return "".join(map(self._line, text.splitlines(keepends=True)))

    def _line(self, line: str) -> str:
        try:
            fields = json.loads(line) if line.startswith("{") else None
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            return self.text(line)
        shown = {
            key: inner if key in _FIXED_IN_LOGS and not isinstance(inner, dict | list) else self.value(inner, key)
            for key, inner in fields.items()
        }
        return json.dumps(shown, ensure_ascii=False, separators=(",", ":")) + "\n"

    def figures(self, text: str) -> str:
        """Return an exposition of Prometheus with the names in labels replaced."""
        return _QUOTED.sub(lambda found: self.text(found[0]), text)

    def _word(self, name: str) -> str:
        return name if _REPLACED.fullmatch(name) else f"x-{self._digest(name)[:10]}"

    def _digest(self, name: str) -> str:
        return hmac.new(self._key, name.lower().encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _address(self, text: str) -> str:
        """Return the word that replaces an IP address; the address itself if it is a loopback or unspecified address.

        Empty for a text that is not an address.
        """
        if not _is_address(text):
            return ""
        address = ipaddress.ip_address(text.strip("[]"))
        if address.is_loopback or address.is_unspecified:
            return text
        return f"ip-{self._digest(str(address))[:10]}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _parts(value: str) -> list[str]:
    """Return the names in the value of a member: the host of a URL, the parts of `group:edge` or `edge/cloud`.

    A path, or a value without parts, as it is. If a part is too short to be replaced alone, the whole value as well. IP
    addresses, and parts that are numbers, such as ports, are left out.
    """
    try:
        host = urlsplit(value).hostname or ""
    except ValueError:
        host = ""
    if "://" in value:
        return [host]
    unnamed = _ADDRESS.sub(lambda found: "" if _is_address(found[0]) else found[0], value)  # they need not be learned
    parts = [part for part in re.split(r"[:/,\s]+", unnamed) if part]
    if len(parts) < 2 and unnamed == value:
        return parts
    if value.startswith("/"):
        return [value]
    whole = [value] if any(len(part) < _SHORTEST for part in parts) else []
    return [*whole, *(part for part in parts if not part.isdigit())]  # not the port of an address
