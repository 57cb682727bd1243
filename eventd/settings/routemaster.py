"""The settings of the Routemaster surface, and Routemaster's own variables, which apply where these settings are
absent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, Field, SecretStr

from eventd.settings.values import (
    Endpoint,
    Seconds,
    StoredSize,
    Switch,
    Text,
    one_of,
    read_age_or_none,
    read_endpoint,
    read_entries,
    read_lines,
    size_between,
    split_entries,
)
from eventd.text.duration import SECOND
from eventd.text.quoting import quoted

SECRETS: Final = ("routemaster_root_key", "routemaster_clients")
"""Settings without a flag: every user of the machine can read command lines."""


def _read_public_url(value: Any) -> str:
    text = str(value).strip().rstrip("/")
    parts = urlsplit(text)
    if text and (
        parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or text != f"https://{parts.netloc}"
    ):
        raise ValueError(f"{quoted(value)} is not https://HOST or https://HOST:PORT")
    return text


def read_networks(value: Any) -> str:
    """Return the text of a setting with addresses and networks. Raises ValueError, which names the wrong entry."""
    text = read_entries(value)
    networks_of(text)
    return text


def networks_of(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the networks in a text. Raises ValueError, which names the wrong entry."""
    found = []
    for entry in split_entries(text.splitlines()):
        try:
            found.append(ip_network(entry.strip()))
        except ValueError:
            raise ValueError(f"{quoted(entry.strip())} is not an address or a network such as 10.1.0.0/16") from None
    return tuple(found)


def _read_interval(value: Any) -> int:
    interval = read_age_or_none(value)
    if 0 < interval < SECOND:
        raise ValueError(f"{quoted(value)} is shorter than 1s")
    return interval


class RoutemasterSettings(BaseModel):
    """The settings of the surface, each with its default."""

    routemaster_listen: Annotated[Endpoint | None, BeforeValidator(read_endpoint)] = Field(
        None, description="`HOST:PORT` of the Routemaster surface; without it, the surface is off."
    )
    routemaster_tls_cert: Text = Field(
        "", description="PEM file of the surface's certificate, or `credential:NAME`: the surface then speaks TLS."
    )
    routemaster_tls_key: Text = Field(
        "", description="PEM file of that certificate's private key, or `credential:NAME`; others may not read it."
    )
    routemaster_require_tls: Switch = Field(
        True, description="Redirect requests to the surface that did not arrive over TLS, except those for health."
    )
    routemaster_public_url: Annotated[str, BeforeValidator(_read_public_url)] = Field(
        "", description="`https://HOST[:PORT]` to redirect to; by default the host that the request names."
    )
    routemaster_trusted_proxies: Annotated[str, BeforeValidator(read_networks)] = Field(
        "",
        description="Addresses and networks of proxies whose `X-Forwarded-Proto` counts, separated by commas; loopback"
        " addresses always do.",
    )
    routemaster_root_key: Annotated[SecretStr, BeforeValidator(read_lines)] = Field(
        SecretStr(""), description="Key of the surface's administrator: at least 16 characters."
    )
    routemaster_root_key_file: Text = Field(
        "", description="File with the key of the surface's administrator, or `credential:NAME`; SIGHUP re-reads it."
    )
    routemaster_clients: Annotated[SecretStr, BeforeValidator(read_lines)] = Field(
        SecretStr(""), description="Tokens to create when the node starts, separated by commas: `NAME--SECRET`."
    )
    routemaster_max_event_data: Annotated[int, size_between(1, 64 << 10)] = Field(
        64, description="Maximum size of an event's `data` as MessagePack."
    )
    routemaster_max_backoff: Seconds = Field(60.0, description="Longest pause between two attempts at a subscriber.")
    routemaster_connect_timeout: Seconds = Field(2.0, description="Time limit for connecting to a subscriber.")
    routemaster_timeout: Seconds = Field(20.0, description="Time limit for a whole delivery to a subscriber.")
    routemaster_ssl_verify: Switch = Field(True, description="Verify the certificates of subscribers.")
    routemaster_scaling_threshold: int = Field(
        100, ge=1, le=2**31, description="Number of due batches from which `/pulse/scaling` takes a second."
    )
    routemaster_scaling_deadline: Seconds = Field(
        1.0, description="A batch counts for `/pulse/scaling` if it is due within this time."
    )
    routemaster_empty_list: Annotated[Literal["204", "200"], one_of("204", "200")] = Field(
        "204", description="Status of an empty list of tokens: 204 without a body, or 200 with `[]`."
    )
    routemaster_max_bytes: StoredSize = Field(
        0, description="Maximum bytes of the events of the surface; 0: no limit of their own."
    )
    routemaster_min_free: StoredSize = Field(
        0, description="How much of `routemaster_max_bytes` stays free: the limit is reached that much earlier."
    )
    routemaster_discard: Annotated[Literal["reject", "old"], one_of("reject", "old")] = Field(
        "reject", description="At that limit, refuse new events with 503 (`reject`) or evict the oldest (`old`)."
    )
    routemaster_metrics_interval: Annotated[int, BeforeValidator(_read_interval)] = Field(
        0, description="Pause between two writings of the surface's metrics to the log, 1s or longer; 0: never."
    )

    @property
    def routemaster_mark(self) -> int:
        """Return the bytes of the surface's events at which new ones are refused, or old ones evicted; 0: no limit."""
        most = self.routemaster_max_bytes
        return max(1, most - self.routemaster_min_free) if most else 0


_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")


def _same(text: str) -> str:
    return text


def _is_on(text: str) -> str:
    return str(re.search("yes|true|on|1", text.lower()) is not None).lower()


def _with(unit: str) -> Callable[[str], str]:
    """Return a function that appends the unit to a number.

    Any other text stays unchanged, so that a refusal shows it as given.
    """
    return lambda text: f"{text.strip()}{unit}" if _NUMBER.fullmatch(text.strip()) else text


_VARIABLES: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "routemaster_root_key": ("ROUTEMASTER_ROOT_KEY", _same),
    "routemaster_clients": ("ROUTEMASTER_CLIENTS", _same),
    "routemaster_require_tls": ("FORCE_SSL", _is_on),
    "routemaster_ssl_verify": ("ROUTEMASTER_SSL_VERIFY", _is_on),
    "routemaster_max_event_data": ("ROUTEMASTER_MAX_EVENT_DATA", _same),
    "routemaster_max_backoff": ("MAX_BACKOFF_MS", _with("ms")),
    "routemaster_timeout": ("ROUTEMASTER_TIMEOUT", _with("s")),
    "routemaster_connect_timeout": ("ROUTEMASTER_CONNECT_TIMEOUT", _with("s")),
    "routemaster_scaling_threshold": ("ROUTEMASTER_SCALING_THRESHOLD", _same),
    "routemaster_scaling_deadline": ("ROUTEMASTER_SCALING_DEADLINE", _with("ms")),
}


def reference_values(environ: Mapping[str, str], given: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """Return the settings that Routemaster's own variables give, each with its variable.

    None while the surface is off. `given`: the settings that are set in another way, which take precedence; so does
    the file of the root key over the key.
    """
    if not given.get("routemaster_listen"):
        return {}
    taken = {*given, "routemaster_root_key"} if given.get("routemaster_root_key_file") else given.keys()
    return {
        name: (read(environ[variable]), variable)
        for name, (variable, read) in _VARIABLES.items()
        if name not in taken and environ.get(variable, "").strip()
    }
