"""Damage: states of nodes are deleted or edited, and clocks are wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.support.campaign.damage import Damage, Scene
from tests.support.campaign.federation import HOUR

State = dict[str, Any]


def _state(node: str, change: Callable[[State], None]) -> Callable[[Scene], None]:
    return lambda scene: scene.lake.set_state(node, change)


def _gone(scene: Scene) -> None:
    for file in scene.lake.states("b"):
        file.unlink()


def _garbled(scene: Scene) -> None:
    for file in scene.lake.states("b"):
        file.write_text("{}")


def _later(state: State) -> None:
    state["complete_until"] += 3 * HOUR
    state["as_of"] += 3 * HOUR


def _complete_too_far(state: State) -> None:
    state["complete_until"] += 3 * HOUR


def _behind(state: State) -> None:
    state["complete_until"] -= 2 * HOUR


def _silent(state: State) -> None:
    state["complete_until"] -= 2 * HOUR
    state["as_of"] -= 2 * HOUR


def _closed(state: State) -> None:
    """An operator closes the node that has been silent for two hours, to have it no longer reported."""
    _silent(state)
    state["closed_at"] = state["as_of"]


def _seldom(state: State) -> None:
    """Say that the node, which has been silent for two hours, ships so seldom that it is not late."""
    _silent(state)
    state["interval"] = 10**15 - 1


def _closed_before_it_began(state: State) -> None:
    _silent(state)
    state["closed_at"] = 1


def _earlier_epoch(scene: Scene) -> None:
    """Invent an earlier epoch, whose ledgers have all rows until long after the audit."""
    (file,) = scene.lake.states("a")
    state = scene.lake.state("a")
    began = state["began_at"]
    state |= {"epoch": "0" * 16, "began_at": began - 100 * HOUR, "as_of": began - 50 * HOUR, "head": 0}
    state |= {"complete_until": began + 10_000 * HOUR, "books": {}, "segments": {}}
    for group in state["groups"]:
        group["last_seq"] = -1
    file.with_name(f"{state['epoch']}.json").write_text(json.dumps(state))


def _cursor(state: State) -> None:
    """Take the cursor of a link back, as if its events were still to be sent."""
    (link,) = (
        peer for group in state["groups"] if group["group"] == "edge" for peer in group["peers"] if peer["peer"] == "b"
    )
    link["cursor"] = 40


def _narrow_in_state(group: str, peer: str) -> Callable[[State], None]:
    """Return a change of a state: the selection of a link matches no event any more, in all of its versions."""

    def narrow(state: State) -> None:
        links = [link for one in state["groups"] if one["group"] == group for link in one["peers"]]
        for version in (version for link in links if link["peer"] == peer for version in link["selections"]):
            version["selection"]["types"] = ["nothing"]

    return narrow


def _narrow_in_receipts(scene: Scene) -> None:
    """Narrow the selection of a link in the receipts, too."""
    _state("a", _narrow_in_state("edge", "b"))(scene)

    def narrow(row: dict[str, Any]) -> dict[str, Any]:
        selection = json.loads(row["selection"] or "{}") | {"types": ["nothing"]}
        return row | {"selection": json.dumps(selection)}

    scene.lake.change("receipts", "a", lambda row: (row["group"], row["peer"]) == ("edge", "b"), narrow)


def _narrow_with_other_deliveries(scene: Scene) -> None:
    """Narrow it there, and let the deliveries name a version that nothing else knows."""
    _narrow_in_receipts(scene)
    link = ("edge", "b")
    scene.lake.change(
        "deliveries", "a", lambda row: (row["group"], row["peer"]) == link, lambda row: row | {"selector_version": 98}
    )


def _later_version(scene: Scene) -> None:
    """Let the last batch of a link name a later, narrower version of its selection, which the state does not have."""
    batch = scene.ledgers.column("""SELECT batch_id FROM before.receipts WHERE node = 'b' AND peer = 'c'
                                    AND "group" = 'line' AND NOT repair ORDER BY number""")[-1]
    selection = json.dumps({"relay": True, "types": ["nothing"]})
    later = {"selector_version": 99}
    scene.lake.change(
        "receipts", "b", lambda row: row["batch_id"] == batch, lambda row: row | later | {"selection": selection}
    )
    scene.lake.change("deliveries", "b", lambda row: row["batch_id"] == batch, lambda row: row | later)


def _copied(scene: Scene) -> None:
    """Give a state to a node that has none, with all of another's but the name."""
    (file,) = scene.lake.states("a")
    folder = scene.lake.root / "nodes" / "z-594e519a"
    folder.mkdir()
    shutil.copyfile(file, folder / file.name)
    copy = folder / file.name
    copy.write_text(copy.read_text().replace('"node": "a"', '"node": "z"'))


def _two_epochs(scene: Scene) -> None:
    """Add the state of a second database that ships under the same name at the same time."""
    (file,) = scene.lake.states("c")
    state = scene.lake.state("c")
    second = file.with_name("ffffffffffffffff.json")
    shutil.copyfile(file, second)
    ending = state["epoch"]
    second.write_text(second.read_text().replace(ending, "ffffffffffffffff"))


def _shift(node: str, hours: int) -> Callable[[Scene], None]:
    """Return a damage: the clock of a node was off, in all its rows and its state."""

    def inflict(scene: Scene) -> None:
        own = ("recorded_at", "attempt_at", "done_at", "sent_at", "acked_at")
        by = timedelta(hours=hours)
        for ledger in ("events", "deliveries", "receipts", "inbound"):
            scene.lake.change(
                ledger,
                node,
                lambda row: True,
                lambda row: row | {name: row[name] + by for name in own if row.get(name) is not None},
            )

        def move(state: State) -> None:
            for name in ("as_of", "complete_until", "began_at"):
                state[name] += hours * HOUR

        scene.lake.set_state(node, move)

    return inflict


def _nothing(scene: Scene) -> None:
    """Leave the lake as it is: it is the audit that is at fault."""


_MOVED = """
    SELECT 'forged', node, batch_id FROM before.inbound b JOIN after.inbound a USING (node, peer, batch_id)
    WHERE a.recorded_at <> b.recorded_at
"""

STATES = (
    Damage(
        "state-gone",
        "the state of a node is deleted",
        "its segments, which have no state",
        _gone,
        wanted="SELECT 'corrupt', 'b', '*'",
        unproven="state",
    ),
    Damage(
        "state-garbled",
        "the state of a node has no content",
        "reading it",
        _garbled,
        wanted="SELECT 'corrupt', 'b', '*'",
        unproven="state",
    ),
    Damage(
        "state-in-the-future",
        "a state is dated hours ahead, with ledgers complete up to then",
        "the clock of the audit",
        _state("a", _later),
        unproven="ahead",
        named=frozenset("a"),
    ),
    Damage(
        "complete-in-the-future",
        "a state says that its ledgers are complete up to a time after it was written",
        "the time of the state itself",
        _state("a", _complete_too_far),
        unproven="complete until a later time",
        named=frozenset("a"),
    ),
    Damage(
        "node-behind",
        "a node reports, but ships no rows for hours",
        "the time up to which its ledgers are complete",
        _state("c", _behind),
        unproven="behind",
        named=frozenset("c"),
    ),
    Damage(
        "node-silent",
        "a node no longer reports",
        "the age of its last report",
        _state("c", _silent),
        unproven="silent since",
        named=frozenset("c"),
    ),
    Damage(
        "silent-node-closed",
        "a node that had stopped shipping hours ago is closed, although it has sent events since",
        "the receipts and batches of the other nodes, which are later",
        _state("c", _closed),
        unproven="behind: it is closed",
        named=frozenset("c"),
    ),
    Damage(
        "interval-edited",
        "a node no longer reports, and its last state says that it ships every 31 years",
        "the interval, which no node may have",
        _state("c", _seldom),
        unproven="looks for rows every",
        named=frozenset("c"),
    ),
    Damage(
        "closed-before-it-began",
        "a node no longer reports, and its last state says that it was closed before it began",
        "the times of the state itself",
        _state("c", _closed_before_it_began),
        unproven="was closed at 1970",
        named=frozenset("c"),
    ),
    Damage(
        "earlier-epoch-invented",
        "the state of an earlier epoch is invented, whose ledgers have all rows until long after the audit",
        "the new epoch, and the times of the invented state",
        _earlier_epoch,
        wanted="SELECT 'epoch', 'a', '*'",
        unproven="complete until a later time",
    ),
    Damage(
        "cursor-taken-back",
        "the cursor of a link is taken back, which a node also does for a peer that was restored; nothing counts as "
        "pending by that, because the receipts show how far the link went",
        "",
        _state("a", _cursor),
        blind=True,
    ),
    Damage(
        "selection-narrowed",
        "the selection of a link is narrowed in the state of its node, under the same version",
        "the receipts of the link, which have the selection of that version",
        _state("b", _narrow_in_state("line", "c")),
        wanted="""
            SELECT DISTINCT 'altered', node, epoch || '/selection/' || selector_version FROM before.receipts
            WHERE node = 'b' AND peer = 'c' AND "group" = 'line' AND NOT repair
        """,
    ),
    Damage(
        "selection-narrowed-with-receipts",
        "the selection of a link is narrowed in the state of its node and in all receipts of the link",
        "the deliveries, which that selection does not match",
        _narrow_in_receipts,
        wanted="""
            SELECT DISTINCT 'disagreement', node, id FROM before.deliveries
            WHERE node = 'a' AND peer = 'b' AND "group" = 'edge' AND outcome = 'delivered' AND NOT repair
        """,
    ),
    Damage(
        "selection-narrowed-with-deliveries",
        "the same, and the deliveries name a version that is not known",
        "the receipts of the batches, which name another version",
        _narrow_with_other_deliveries,
        wanted="""
            SELECT DISTINCT 'altered', node, batch_id FROM before.deliveries
            WHERE node = 'a' AND peer = 'b' AND "group" = 'edge' AND outcome = 'delivered'
        """,
        allowed="""
            SELECT DISTINCT 'disagreement', node, id FROM before.deliveries
            WHERE node = 'a' AND peer = 'b' AND "group" = 'edge' AND outcome = 'delivered' AND NOT repair
        """,
    ),
    Damage(
        "selection-narrowed-later",
        "a later, narrower version of the selection is invented in the last batch of a link",
        "the state of the node, which does not know it",
        _later_version,
        wanted="SELECT DISTINCT 'altered', node, epoch || '/selection/99' FROM before.receipts WHERE node = 'b'",
    ),
    Damage(
        "state-copied",
        "the state of a node is copied for another name",
        "the instance of its database, which two names have",
        _copied,
        wanted="SELECT 'epoch', 'z', '*'",
        allowed="SELECT 'corrupt', 'z', '*' UNION SELECT 'epoch', 'a', '*' UNION SELECT 'corrupt', 'a', '*'",
    ),
    Damage(
        "two-databases",
        "two databases ship under one name",
        "two epochs that are reported at the same time",
        _two_epochs,
        wanted="SELECT 'epoch', 'c', '*'",
        allowed="SELECT 'corrupt', 'c', '*'",
    ),
    Damage(
        "times-moved-ahead",
        "all times in the rows and the state of a node are moved by three hours",
        "its copies of the receipts that it gave",
        _shift("c", 3),
        wanted=_MOVED,
    ),
    Damage(
        "times-moved-back",
        "all times in the rows and the state of a node are moved back by three hours",
        "its copies of the receipts that it gave; the age of its last report",
        _shift("b", -3),
        wanted=_MOVED,
        unproven="silent since",
        named=frozenset("b"),
    ),
    Damage(
        "audit-clock-behind",
        "the clock of the audit's machine is three hours behind",
        "the times of the states, which are later",
        _nothing,
        unproven="ahead",
        audited_after=-3 * HOUR,
    ),
    Damage(
        "audit-clock-ahead",
        "the clock of the audit's machine is three hours ahead, or no node has reported for three hours",
        "the age of the last reports",
        _nothing,
        unproven="silent since",
        audited_after=3 * HOUR,
    ),
)
