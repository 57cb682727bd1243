"""IP addresses as URLs write them, also in the odd notations of IPv4. Pure."""

from __future__ import annotations

import ipaddress
import re

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_NUMBER = re.compile(r"0[xX](?P<hex>[0-9a-fA-F]{1,253})|0(?P<octal>[0-7]{0,253})|(?P<decimal>[1-9][0-9]{0,15})")


def literal_address(host: str) -> IpAddress | None:
    """Return the address that a URL's host is, such as `10.0.0.1`, `127.1`, `0x7f000001` or `fe80::1%25eth0`.

    None for a name. IPv6 is written without its brackets.
    """
    host = host.removesuffix(".")
    try:
        host = host if host.isascii() else host.encode("idna").decode("ascii")  # digits of other scripts
        return ipaddress.ip_address(host.replace("%25", "%", 1))
    except ValueError:
        return loose_ipv4(host)


def loose_ipv4(text: str) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that resolvers read in a text: one to four numbers in decimal, octal or hexadecimal.

    The last number fills the remaining bytes: `127.1` is 127.0.0.1. None for any other text.
    """
    parts = [_NUMBER.fullmatch(part) for part in text.split(".")]
    numbers = [_value(part) for part in parts if part is not None]
    if not len(parts) == len(numbers) <= 4:
        return None
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(numbers)):
        return None
    high = sum(number << 8 * (3 - at) for at, number in enumerate(first))
    return ipaddress.IPv4Address(high + last)


def _value(number: re.Match[str]) -> int:
    if number["hex"]:
        return int(number["hex"], 16)
    return int(number["decimal"]) if number["decimal"] else int(number["octal"] or "0", 8)
