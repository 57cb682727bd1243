"""Clients seen on one side become claims on the other: the cloud router takes over the address of a client on premises
and sends what arrives for it through the tunnel.

The payload of an event may say more than the address: `domain`, `ownerSide`, `providerRef`, `nicRef` and `peerRef`.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_interface

from eventd.plugins import Event, Part, Resource

OBSERVED = "routerd.client.ipv4.observed"
TUNNEL = "wg-hybrid"


def plugin(event: Event) -> Iterator[Part]:
    """One claim for each client. Its name follows from the address alone: seen again, it is the same claim."""
    said = event.payload
    address = said.get("address") or event.subject
    side = said.get("ownerSide") or "onprem"
    if event.type != OBSERVED or not is_address(address) or side not in ("onprem", "cloud"):
        return
    host = address.partition("/")[0]
    claim = Resource(
        api_version="hybrid.routerd.net/v1alpha1",
        kind="RemoteAddressClaim",
        name=f"{side}-{host.replace('.', '-').replace(':', '-')}",
        spec={
            "domainRef": said.get("domain", ""),
            "address": address,
            "ownerSide": side,
            "capture": {
                "type": "provider-secondary-ip",
                "providerRef": said.get("providerRef") or "example-provider",
                "nicRef": said.get("nicRef") or "example-nic-ref",
                "configureOSAddress": False,
            },
            "delivery": {
                "peerRef": said.get("peerRef") or "onprem-main",
                "mode": "route",
                "tunnelInterface": TUNNEL,
            },
        },
    )
    yield Part(resources=[claim], ttl="30m")


def is_address(text: str) -> bool:
    """Whether it can be claimed. Anybody in the group may send any text, so look before you propose."""
    try:
        ip_interface(text)
    except ValueError:
        return False
    return True
