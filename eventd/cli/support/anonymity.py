"""Replaces names and addresses in a bundle: the same name by the same word, by a key that is thrown away."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from eventd.runtime.chance import Chance

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
"""Members that are mappings whose keys are names of the operator."""
_ADDRESS: Final = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|\[?[0-9A-Fa-f:]*::?[0-9A-Fa-f:.]+\]?)(?![\w.:])")
_HOST: Final = re.compile(r"(?<=://)[^/:\s\"'<>\[\]]+")
_QUOTED: Final = re.compile(r'(?<==")[^"\n]*(?=")')
_REPLACED: Final = re.compile(r"(?:x|ip)-[0-9a-f]{10}")
_SHORTEST: Final = 2
_COMMON: Final = frozenset(
    {
        *("ok", "all", "true", "false", "none", "v1", "v2", "auto", "push", "running", "federation", "group", "peer"),
        *("callback", "subscription", "topic", "queue", "router", "resend", "database", "socket", "key", "node", "api"),
        *("console", "user", "uid", "command", "session", "name", "error", "state", "reason"),
    }
)
"""Words of the product: a name that is one of them says nothing about the operator."""


class Pseudonyms:
    """Collects names, and replaces them in texts and values."""

    def __init__(self, chance: Chance) -> None:
        self._key = chance.token(32)
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: Any, name: str = "") -> None:
        """Note the names that a value of JSON holds."""
        if isinstance(value, Mapping):
            if name in _KEYED_BY_NAMES:
                self._add(value)
            for key, inner in value.items():
                self.learn(inner, str(key))
        elif isinstance(value, list):
            for inner in value:
                self.learn(inner, "" if isinstance(inner, Mapping) else name)
        elif isinstance(value, str) and name in _NAMES:
            self._add([value, *_parts(value)])

    def _add(self, words: Iterable[str]) -> None:
        self._known |= {word for word in words if len(word) >= _SHORTEST and word.lower() not in _COMMON}
        self._pattern = None

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON with all names replaced; of keys, those of mappings by name."""
        if isinstance(value, Mapping):
            named = name in _KEYED_BY_NAMES
            return {self.text(key) if named else key: self.value(inner, str(key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Return a text with names, host names of URLs, and IP addresses replaced."""
        text = _HOST.sub(lambda found: self._address(found[0]) or self._word(found[0]), text)
        text = _ADDRESS.sub(lambda found: self._address(found[0]) or found[0], text)
        if self._pattern is None:
            longest_first = sorted(self._known, key=lambda word: (-len(word), word))
            words = "|".join(map(re.escape, longest_first)) or r"(?!)"
            self._pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")
        return self._pattern.sub(lambda found: self._word(found[0]), text)

    def log(self, text: str) -> str:
        """Return lines of a log with names replaced; of a line of JSON, only in its values."""
        return "".join(map(self._line, text.splitlines(keepends=True)))

    def _line(self, line: str) -> str:
        try:
            fields = json.loads(line) if line.startswith("{") else None
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            return self.text(line)
        return json.dumps(self.value(fields), ensure_ascii=False, separators=(",", ":")) + "\n"

    def figures(self, text: str) -> str:
        """Return an exposition of Prometheus with the names in labels replaced."""
        return _QUOTED.sub(lambda found: self.text(found[0]), text)

    def _word(self, name: str) -> str:
        return name if _REPLACED.fullmatch(name) else f"x-{self._digest(name)[:10]}"

    def _digest(self, name: str) -> str:
        return hmac.new(self._key, name.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _address(self, text: str) -> str:
        """Return a word for an IP address, which itself stays if it is that of the machine; empty if it is none."""
        try:
            address = ipaddress.ip_address(text.strip("[]"))
        except ValueError:
            return ""
        if address.is_loopback or address.is_unspecified:
            return text
        return f"ip-{self._digest(str(address))[:10]}"


def _parts(value: str) -> list[str]:
    """Return the host of a URL, and the parts of a name such as `group:edge` or `edge/cloud`."""
    try:
        host = urlsplit(value).hostname or ""
    except ValueError:
        host = ""
    if "://" in value:
        return [host]
    return [] if value.startswith("/") else re.split(r"[:/,\s]+", value)
