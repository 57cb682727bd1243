"""Shared by measurements of several nodes: the group between them, the state of links, and the times of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventd.bench.nodes import LOOK_SECONDS, Node, group_of, pause, peer_of
from eventd.bench.wire import NodeClient, now

PATIENCE_SECONDS = 60.0
"""Seconds without any arrival after which the rest counts as lost."""
SETTLE_SECONDS = 10.0
ROWS = 20_000


async def join(sender: Node, receivers: Sequence[Node], group: str, *, paused: bool = False) -> None:
    """Declare the group on the sender, with the receivers as its peers; with `paused`, also pause the links to them.

    The group must be declared on each receiver separately."""
    places = [(node.name, *node.listen) for node in receivers if node.listen is not None]
    await sender.declare(group_of(sender, group), *[peer_of(group, *place) for place in places])
    for name, _, _ in places if paused else []:
        await sender.client.call("POST", f"/api/v1/groups/{group}/peers/{name}/pause", {"by": "routerctl bench"})


async def resume(sender: Node, receiver: Node, group: str) -> None:
    """Resume the sender's paused link to the receiver."""
    await sender.client.call("POST", f"/api/v1/groups/{group}/peers/{receiver.name}/resume", {})


async def links_of(sender: Node, group: str) -> dict[str, dict[str, Any]]:
    """Return what the sender reports on each of its links to peers, by the node name of the peer."""
    answer = await sender.client.call("GET", f"/api/v1/groups/{group}/links")
    return {link["peer"]: link for link in answer["outbound"]}


async def settle(sender: Node, group: str, receivers: Sequence[Node]) -> None:
    """Wait until no event waits for the receivers and the sender's ledger has all receipts, or `SETTLE_SECONDS`."""
    deadline, names = now() + SETTLE_SECONDS, {node.name for node in receivers}
    while any(link["lagEvents"] for name, link in (await links_of(sender, group)).items() if name in names):
        if now() > deadline:
            return  # the verification reports what has not arrived
        await pause(LOOK_SECONDS)


async def troubles(sender: Node, group: str) -> list[str]:
    """Return a message for each link of the sender that reports a reason or an error."""
    links = (await links_of(sender, group)).values()
    return [
        f"the link to {link['peer']} is {link['state']}: {link['reason'] or link['lastError']}"
        for link in links
        if link["reason"] or link["lastError"]
    ]


async def last_receipt(client: NodeClient) -> int:
    """Return the id of the last row in the node's ledger of receipts."""
    return int((await client.call("GET", "/api/v1/books"))["books"]["receipts"]["last"])


async def seconds_of_batches(client: NodeClient, group: str, after: int) -> list[float]:
    """Return the seconds from sending to receipt of each acknowledged batch of a group in ledger rows above `after`."""
    found: list[float] = []
    more, epoch = True, ""
    while more:
        asked = f"/api/v1/books/receipts?rows={ROWS}&after={after}&epoch={epoch}"
        page = await client.call("GET", asked)
        columns = page["columns"]
        rows = zip(columns["group"], columns["sent_at"], columns["acked_at"], strict=True)
        found += [(acked - sent) / 1e6 for name, sent, acked in rows if name == group and acked]
        after, more, epoch = page["upto"], page["full"], page["epoch"]
    return found
