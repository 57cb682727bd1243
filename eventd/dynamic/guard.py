"""Refuses events that report a client at an address which this node itself captures (a RemoteAddressClaim).

This node itself answers for such an address: the client is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from eventd.errors import Conflict
from eventd.log.core.head import read_head
from eventd.log.core.values import Draft
from eventd.store.engine.database import Connection
from eventd.store.parts.claims import CAPTURING_KIND, UNREADABLE, captured_by, host_address, key_of
from eventd.store.parts.reading import read_captures
from eventd.store.rows.registry import read_resources
from eventd.text.arguments import as_argument
from federation.event import DECODER

OBSERVED: Final = "routerd.client.ipv4.observed"

Observation = tuple[str, str, Mapping[str, str]]
"""Type, subject and payload of an event before it is stored."""


class SelfCapture(Conflict):
    """Events report clients at addresses that this node captures, or may capture; `detail` names each by its index."""

    code = "self_capture"

    def __init__(self, refused: Sequence[tuple[int, str, str]]) -> None:
        """`refused`: index, message and hint of each refused event; the error has the first message and hint."""
        _, message, hint = refused[0]
        super().__init__(message, hint=hint)
        self.detail = [{"index": index, "message": said} for index, said, _ in refused]


def refuse_captured(conn: Connection, events: Iterable[Observation], now: int) -> None:
    """Raise SelfCapture if events report addresses that a declared resource or an unexpired part captures.

    Masked resources and unused parts count. A capture whose address cannot be read refuses every report: it could be
    the same address.
    """
    reports = [
        (at, address_of(subject, payload)) for at, (type, subject, payload) in enumerate(events) if type == OBSERVED
    ]
    reported = {address for _, address in reports} - {""}
    if not reported:
        return
    captures = _captures(conn, reported, now)
    unreadable = captures.get(UNREADABLE)
    found = ((at, captures.get(address) or unreadable) for at, address in reports if address)
    if refused := [(at, *refusal) for at, refusal in found if refusal]:
        raise SelfCapture(refused)


def refuse_proposed(resources: Iterable[Mapping[str, Any]], events: Iterable[Observation]) -> None:
    """Raise SelfCapture if events report addresses that resources of the same plugin result capture.

    A capture whose address cannot be read refuses every report.
    """
    captures = {captured_by(resource): key_of(resource) for resource in resources} if (events := [*events]) else {}
    refused = []
    for index, (type, subject, payload) in enumerate(events):
        address = address_of(subject, payload)
        if type != OBSERVED or not address:
            continue
        if key := captures.get(address):
            said = f"the plugin's result reports a client at {address}, which its own {key} captures"
            refused.append((index, said, "fix the plugin"))
        elif key := captures.get(UNREADABLE):
            said = f"{key} of the plugin's result captures an address that cannot be read; it might be {address}"
            refused.append((index, said, "write spec.address as an IP address"))
    if refused:
        raise SelfCapture(refused)


def observations_of(drafts: Iterable[Draft]) -> list[Observation]:
    """Return those of the drafts that report a client, as observations, in their order."""
    reports = (DECODER.decode(draft.body) for draft in drafts if draft.tag == OBSERVED)
    return [(event.type, event.subject, event.payload) for event in reports]


def address_of(subject: str, payload: Mapping[str, str]) -> str:
    """Return the address that an event reports, without prefix length: from payload or subject; empty if none."""
    return host_address(payload.get("address")) or host_address(subject)


def _captures(conn: Connection, addresses: set[str], now: int) -> dict[str, tuple[str, str]]:
    """Return message and hint by captured address, for those of `addresses`.

    Under `?` for a capture whose address is unreadable.
    """
    wanted = {*addresses, UNREADABLE}
    declared = _declared_captures(conn)
    hints = {
        address: _refusal(address, declared[address], f"routerctl delete {declared[address].replace('/', ' ')}")
        for address in wanted & declared.keys()
    }
    for address, key, source in read_captures(conn, wanted, now):
        hints[address] = _refusal(address, f"{key} of {source}", _deletion(source))
    return hints


def _deletion(source: str) -> str:
    return f"routerctl dynamic delete {as_argument(source, 'SOURCE')}"


def _refusal(address: str, by: str, remedy: str) -> tuple[str, str]:
    if address == UNREADABLE:
        return f"{by} captures an address that cannot be read; it might be this one", remedy
    return f"{address} is captured by {by}: it is not a client of this node", ""


def _declared_captures(conn: Connection) -> dict[str, str]:
    """Return the declared captures, as `Kind/name` by address, cached on the connection until declarations change."""
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
