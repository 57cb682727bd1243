"""What the API shows of witnesses, and what a reset and a rotation change."""

from __future__ import annotations

import json

import pytest

from eventd.errors import NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.witnesses.cosignatures import note_witness_state
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.offers import OfferFrom
from eventd.testing import NOW, ManualClock
from federation.history.entries import OpeningReason, PreviousTree
from federation.history.fork_file import check_fork
from federation.history.witnessing import KeySource, Offer
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger
from tests.support.growing_tree import GrowingTree
from tests.support.histories import OWNER, signed, start


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node b, which keeps a history and has cosigned a tree of node a."""
    found = GroupLedger(log, clock)
    await found.declare(spec="history: {mode: record}")
    return found


async def offer(books: GroupLedger, offer: Offer, node: str = "a", source: KeySource = KeySource.SHARED) -> None:
    offered = OfferFrom(await books.log.topic("group:g"), "g", node, source, {}, (node,), offer)
    await books.log.database.write(decide, offered, NOW)


async def test_held_trees_keys_and_findings_are_shown(books: GroupLedger) -> None:
    honest, forked = GrowingTree().grow("x"), GrowingTree().grow("y")
    await offer(books, honest.offer())
    await offer(books, forked.offer(1))
    topic, tree = await start(books.log, OWNER)
    await signed(books.log, topic, OWNER)
    await books.log.database.write(note_witness_state, tree.id, "c", "refused", "key_changed: …", NOW)
    shown = await books.call("history.witnesses", group="g")
    [held], [key], [finding], [witness] = (shown[part] for part in ("held", "keys", "findings", "witnesses"))
    assert (held["node"], held["size"], held["origin"]) == ("a", 2, str(honest.origin))
    assert (key["node"], key["kind"], key["source"], key["refused"]) == ("a", "log", "shared", None)
    assert (finding["kind"], finding["size"], finding["otherSize"], finding["confirmedAt"]) == ("fork", 2, 2, None)
    assert (witness["peer"], witness["state"], witness["detail"]) == ("c", "refused", "key_changed: …")
    one = await books.call("history.finding", group="g", id=finding["id"])
    proven = check_fork(json.dumps(one["file"]).encode(), [honest.signer.key])
    assert proven.first.root != proven.second.root
    with pytest.raises(NotFound, match="no finding 99999999"):
        await books.call("history.finding", group="g", id=99_999_999)


@on_sqlite
async def test_a_fork_that_two_checkpoints_do_not_show_has_no_file(books: GroupLedger) -> None:
    tree = GrowingTree().grow("x")
    await offer(books, tree.offer())
    await offer(books, GrowingTree().grow("y", "z").offer(2), source=KeySource.OWNED)
    other = PreviousTree(tree.origin, 2, bytes(32))
    await offer(books, GrowingTree("u", reason=OpeningReason.EPOCH, previous=other).offer())
    found = (await books.call("history.witnesses", group="g"))["findings"]
    assert [(one["kind"], one["size"], one["otherSize"]) for one in found] == [("fork", 2, 2), ("fork", 2, 3)]
    for one in found:
        assert (await books.call("history.finding", group="g", id=one["id"]))["file"] is None


@on_sqlite
async def test_a_link_shows_the_worst_finding_until_it_is_confirmed(books: GroupLedger) -> None:
    await books.declare("b", spec="history: {mode: record}")

    async def shown() -> str:
        return str((await books.call("links.status", group="g", peer="b"))["outbound"][0]["history"])

    assert await shown() == ""
    await offer(books, GrowingTree(node="b").grow("x").offer(), "b")
    await offer(books, GrowingTree("u", node="b").offer(), "b")
    assert await shown() == "rolled_back"
    await offer(books, GrowingTree(node="b").grow("y").offer(2), "b")
    assert await shown() == "fork"
    await books.call("history.reset", group="g", node="b")
    assert await shown() == ""


@on_sqlite
async def test_a_reset_confirms_findings_and_forgets_trees_and_keys(books: GroupLedger) -> None:
    await offer(books, GrowingTree().grow("x").offer())
    await offer(books, GrowingTree().grow("y").offer(1))
    assert await books.call("history.reset", group="g", node="a") == {
        "group": "g",
        "node": "a",
        "findings": 1,
        "trees": 1,
        "keys": 1,
        "pinned": False,
        "witness": 0,
    }
    shown = await books.call("history.witnesses", group="g")
    assert (shown["held"], shown["keys"]) == ([], [])
    assert [one["kind"] for one in shown["findings"]] == ["reset", "fork"]
    assert shown["findings"][1]["confirmedAt"]
    assert shown["open"] == {}


async def test_a_node_of_which_nothing_is_known_is_not_reset(books: GroupLedger) -> None:
    await books.declare("peer-b", spec="history: {mode: record}")
    await offer(books, GrowingTree().offer())
    with pytest.raises(NotFound, match="nothing is known of the history of nobody in group g") as refused:
        await books.call("history.reset", group="g", node="nobody")
    assert refused.value.hint == "known: a, peer-b"
    with pytest.raises(NotFound) as refused:
        await books.call("history.reset", group="g", node="peer-a")
    assert refused.value.hint == "did you mean peer-b?"
    answer = await books.call("history.reset", group="g", node="peer-b")
    assert (answer["trees"], answer["pinned"]) == (0, False), "it is declared"
    pin = GrowingTree().signer.key.text()
    await books.declare("peer-b", spec=f"history: {{mode: record, keys: [{{node: a, logKey: {pin}}}]}}")
    assert (await books.call("history.reset", group="g", node="a"))["pinned"], "a reset forgets no declared key"
    found = (await books.call("history.findings", group="g"))["findings"]
    assert [one["detail"] for one in found] == ["an operator reset it: 1 leaf was held"]


async def test_findings_are_listed_page_by_page_the_newest_first(books: GroupLedger) -> None:
    for name in "tuv":
        await offer(books, GrowingTree(name).offer())
        await offer(books, GrowingTree(name, node="b").offer(), "b")
    assert (await books.call("history.witnesses", group="g"))["open"] == {"rolled_back": 4}
    seen, after = list[int](), 0
    while True:
        page = await books.call("history.findings", group="g", limit=3, after=after)
        seen += [one["id"] for one in page["findings"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 4
