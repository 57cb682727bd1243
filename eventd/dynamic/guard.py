"""A node must not report as a client what it captures itself: the address is there because of an earlier report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from eventd.errors import Conflict
from eventd.log.head import read_head
from eventd.log.values import Draft
from eventd.store.claims import CAPTURING_KIND, UNREADABLE, captured_by, host_address
from eventd.store.database import Connection
from eventd.store.parts import read_captures
from eventd.store.registry import read_resources
from federation.event import DECODER

OBSERVED: Final = "routerd.client.ipv4.observed"

Observation = tuple[str, str, Mapping[str, str]]
"""Type, subject and payload of an event that is about to enter here."""


class SelfCapture(Conflict):
    """The address of a reported client is one that this node captures."""

    code = "self_capture"


def refuse_captured(conn: Connection, events: Iterable[Observation], now: int) -> None:
    """Raise SelfCapture when one of the events reports an address that a live part or a declared resource captures.

    A capture whose address cannot be read refuses every report: it might be of this one.
    """
    addresses = {address_of(subject, payload) for type, subject, payload in events if type == OBSERVED} - {""}
    if not addresses:
        return
    for address, key, source in read_captures(conn, {*addresses, UNREADABLE}, now):
        raise _refusal(address, f"{key} of {source}", f"routerctl dynamic delete {source}")
    declared = _declared_captures(conn)
    for address in sorted(addresses & declared.keys()) or sorted({UNREADABLE} & declared.keys()):
        raise _refusal(address, declared[address], f"routerctl delete {declared[address].replace('/', ' ')}")


def observations_of(drafts: Iterable[Draft]) -> list[Observation]:
    """The reports among facts that are about to enter here."""
    reports = (DECODER.decode(draft.body) for draft in drafts if draft.tag == OBSERVED)
    return [(event.type, event.subject, event.payload) for event in reports]


def address_of(subject: str, payload: Mapping[str, str]) -> str:
    """The address that an event reports, without its prefix: in its payload, or its subject; blank for none."""
    return host_address(payload.get("address")) or host_address(subject)


def _refusal(address: str, by: str, remedy: str) -> SelfCapture:
    if address == UNREADABLE:
        return SelfCapture(f"{by} captures an address that cannot be read: it might be this one", hint=remedy)
    return SelfCapture(f"{address} is captured by {by}: it is no client of this node")


def _declared_captures(conn: Connection) -> dict[str, str]:
    """What declared resources capture. The connection remembers it for as long as nothing else is declared."""
    head = read_head(conn)
    version = (head.epoch, head.registry_version)
    known: tuple[tuple[str, int], dict[str, str]] | None = conn.info.get("declared captures")
    if known is not None and known[0] == version:
        return known[1]
    captures: dict[str, str] = {}
    for row in read_resources(conn, CAPTURING_KIND):
        if address := captured_by({"kind": row.kind, "spec": row.spec}):
            captures.setdefault(address, f"{row.kind}/{row.name}")
    conn.info["declared captures"] = (version, captures)
    return captures
