"""Host names and IP addresses, as people write them."""

from __future__ import annotations

import ipaddress
import re

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


def is_host_name(text: str) -> bool:
    """Return whether the text can be a host name; False if its last label is a number, as in a mistyped address."""
    labels = text.removesuffix(".").split(".")
    return len(text) <= 253 and not labels[-1].isdigit() and all(_LABEL.fullmatch(label) for label in labels)


def is_ip_address(text: str) -> bool:
    """Return whether the text is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
