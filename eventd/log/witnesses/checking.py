"""Compares events of other nodes with the trees of those nodes: whether each has the leaf that its sender stated.

What is stated is a hint. If it is wrong, the event is looked for in all tiles of its node, and the hint is corrected.
An event is refuted only if a tree covers the stated leaf and no leaf of its node is the event. A node that finds out
that its database is an older copy moves events to another tree: so all tiles of later trees must be here, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eventd.log.core.scan import scan
from eventd.log.history.refuted import find_refreshed
from eventd.log.history.trees import (
    DAY,
    MINUTE,
    Tree,
    find_hash,
    has_all_tiles,
    read_checkpoint_of,
    read_tiles,
)
from eventd.log.witnesses.checked_rows import CheckedRow, LeafVerdict, RefutedEvent
from eventd.log.witnesses.offers import WitnessedTree
from eventd.log.witnesses.witnessed import find_witnessed, read_believed_trees, read_of
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.digest import digest
from federation.errors import Malformed
from federation.event import read_outlines
from federation.history.checkpoints import LogOrigin, read_origin
from federation.history.entries import event_entry
from federation.history.leaf_hints import LeafPlace, find_place, join_places, read_places, write_places
from federation.history.merkle import HASH_SIZE, hash_leaf
from federation.history.tiles import TILE_WIDTH
from federation.loops import Path, decode_path

MOST_EVENTS: Final = 512
"""How many events one step compares, about a millisecond."""
MOST_ROWS: Final = 128
"""How many rows of hints one step reads."""
MOST_SEARCHES: Final = 16
"""How many events one step looks for in all tiles of their nodes."""
WAITING_EVENTS: Final = 8
"""As how many events a row counts whose next event cannot be compared yet."""
WAIT: Final = MINUTE // 6
"""After how long an event that no tile covers yet is looked at again, at first."""
LONGEST_WAIT: Final = 10 * MINUTE
"""The longest pause of an event that waits: an eighth of its age, so that many that wait for long cost little."""
GRACE: Final = MINUTE // 2
"""So long after its arrival an event is not refuted: its node may seal it later than it is passed on."""
MOST_SEARCHED: Final = 16_384
"""Of how many events that wait it is remembered which leaves have been searched for them."""
LONGEST: Final = DAY
"""For how long an event may wait for tiles that cover it."""


class CheckScope(NamedTuple):
    """A group whose events are checked. `pinned`: nodes whose keys are declared; `peers`: nodes that can be asked."""

    topic_id: int
    group: str
    pinned: Collection[str]
    peers: Collection[str]


@dataclass
class CheckedStep:
    """What one step has found out. `wanted`: trees that are missing, with the peer to ask. `more`: another step is due.

    `since`: when the first row was due. `moved`: an event was compared, so that not all of them wait.
    """

    rows: list[CheckedRow] = field(default_factory=list)
    moved: bool = False
    wanted: dict[tuple[str, str], None] = field(default_factory=dict)
    more: bool = False
    since: int | None = None


def read_overdue(conn: Connection, topic_id: int, now: int) -> int:
    """Return for how many microseconds the check of events has been due; 0: nothing is."""
    sql = "SELECT min(due) FROM leaf_hints WHERE topic_id = ? AND due <= ?"
    ((since,),) = fetch(conn, sql, (topic_id, now))
    return 0 if since is None else now - int(since)


Searched = dict[int, Mapping[int, int]]
"""By the position of an event that waits: how many leaves of each later tree, by its id, have been searched for it."""


def check_due(conn: Connection, scope: CheckScope, now: int, searched: Searched) -> CheckedStep:
    """Compare the next events with the tiles of their nodes' trees, in a read: nothing is locked.

    What was `searched` in earlier steps is not searched again: a false hint can have an event wait for a day.
    """
    sql = "SELECT position, upto, places, checked, due FROM leaf_hints WHERE topic_id = ? AND due"
    order = f"ORDER BY due, position LIMIT {MOST_ROWS}"
    rows = fetch(conn, f"{sql} <= ? {order}", (scope.topic_id, now))
    if not rows:  # a pause that ends later than one that begins now was stored with a clock that was ahead
        rows = fetch(conn, f"{sql} > ? {order}", (scope.topic_id, now + LONGEST_WAIT))
    step = CheckedStep(more=len(rows) == MOST_ROWS, since=rows[0][4] if rows else None)
    if rows:
        checker = _Checker(conn, scope, now, step, searched)
        for position, upto, places, checked, _ in rows:
            if checker.is_spent:
                step.more = True
                break
            step.rows.append(checker.check_row(position, upto, read_places(places), checked))
    return step


class _Event(NamedTuple):
    position: int
    path: Path
    body: str
    recorded_at: int


class _Checker:
    """Compares the events of one step, in one transaction."""

    def __init__(self, conn: Connection, scope: CheckScope, now: int, step: CheckedStep, searched: Searched) -> None:
        self._conn = conn
        self._scope = scope
        self._now = now
        self._step = step
        self._searched = searched
        self._known = [(read_origin(tree.origin), tree) for tree in read_believed_trees(conn, scope.topic_id)]
        self._trees = {tree.origin: tree for _, tree in self._known}
        self._witnessed: dict[str, WitnessedTree | None] = {}
        self._held: dict[str, list[WitnessedTree]] = {}
        self._tiles: dict[tuple[int, int], bytes] = {}
        self._events, self._searches = MOST_EVENTS, MOST_SEARCHES

    @property
    def is_spent(self) -> bool:
        """Whether the step has compared what one step may compare."""
        return self._events <= 0

    def check_row(self, position: int, upto: int, places: Sequence[LeafPlace], checked: int) -> CheckedRow:
        """Compare the events of a row, up to one that must wait, or to the end of the step."""
        found = CheckedRow(position, upto, checked, max(checked, position - 1), self._now)
        corrected: list[LeafPlace] = []
        for event in self._events_of(found.checked, upto):
            if self.is_spent:
                self._step.more = True
                break
            self._events -= 1
            verdict = self._judge(event, find_place(places, event.position), found, corrected)
            if verdict is None:
                self._events -= WAITING_EVENTS
                break
            self._searched.pop(event.position, None)
            found.verified += verdict is LeafVerdict.VERIFIED
            found.unproven += verdict is LeafVerdict.UNPROVEN
            found.checked = event.position
            self._step.moved = True
        else:
            found.checked = upto  # also where the last records were evicted
        if corrected:
            found.places = _correct(places, corrected, upto)
        return found

    def _events_of(self, after: int, upto: int) -> Iterator[_Event]:
        for block in scan(self._conn, self._scope.topic_id, after, upto):
            for at, (path, body) in enumerate(block.entries(), block.position):
                if body and path:
                    try:
                        yield _Event(at, decode_path(path), body, block.recorded_at)
                    except Malformed:
                        continue

    def _judge(
        self, event: _Event, hint: tuple[str, int], row: CheckedRow, corrected: list[LeafPlace]
    ) -> LeafVerdict | None:
        """Return the verdict on an event; None if it must wait until `row.due`."""
        (name, index), node = hint, event.path[0]
        if not index:
            return LeafVerdict.UNPROVEN
        origin = LogOrigin(self._scope.group, node, name)  # another node may have chosen the same id for a tree
        tree = self._trees.get(str(origin))
        if tree is None or tree.size <= index:
            return self._judge_uncovered(event, origin, row, corrected)
        there = self._leaf_at(tree, index)
        if there is None:  # pruned
            return LeafVerdict.UNPROVEN
        leaf = _leaf_of(event)
        if there == leaf:
            return LeafVerdict.VERIFIED
        if self._searches <= 0:  # other rows are compared first, which may need no search
            self._step.more = True
            return None
        found = self._search(node, leaf)
        if found is not None:
            corrected.append(LeafPlace(event.position, found[1], found[0]))
            return LeafVerdict.VERIFIED
        if not has_all_tiles(self._conn, tree):
            return LeafVerdict.UNPROVEN
        later = self._opened_after(tree, node)
        if self._now < event.recorded_at + GRACE:
            for name in (tree.origin, *(one.origin for one in later)):
                self._want(event, read_origin(name))
            row.due = event.recorded_at + GRACE
            return None
        for one in later:
            kept = self._trees.get(one.origin)
            if kept is None or not self._is_current(kept, one, event):
                return self._wait(event, read_origin(one.origin), row)
            if not has_all_tiles(self._conn, kept):
                return LeafVerdict.UNPROVEN
        event_id = read_outlines([event.body])[0].id
        text = digest(event.body.encode()).hex()
        shown = text, tree, index, leaf, there, event.path[-1]
        earlier = find_refreshed(self._conn, self._scope.topic_id, event_id, event.position)
        row.refuted.append(RefutedEvent(event.position, event_id, *shown, earlier or []))
        if earlier is not None:
            self._searches = 0  # they may lie far back, and one such reading is enough for a step
        return LeafVerdict.REFUTED

    def _judge_uncovered(
        self, event: _Event, origin: LogOrigin, row: CheckedRow, corrected: list[LeafPlace]
    ) -> LeafVerdict | None:
        """Return the verdict on an event whose stated leaf no tile covers: VERIFIED if a later tree has the event.

        A tree that ends with leaves that were not sealed never covers them: its node seals them in the next tree. A
        stated tree of which nothing is known may have ended as well, or is only about to be witnessed: at first.
        """
        stated = self._trees.get(str(origin)) or self._find_held(origin)
        is_expected = stated is None and self._now < event.recorded_at + GRACE
        later = [] if is_expected else self._opened_after(stated, origin.node)
        kept = {one.origin: self._trees.get(one.origin) for one in later}
        here = {name: tree for name, tree in kept.items() if tree is not None}
        before = self._searched.get(event.position, {})
        grown = {name: before.get(tree.id, 0) for name, tree in here.items() if tree.size > before.get(tree.id, 0)}
        if grown:
            if self._searches <= 0:  # other rows are compared first, which may need no search
                self._step.more = True
                return None
            found = self._search(origin.node, _leaf_of(event), grown)
            if found is not None:
                corrected.append(LeafPlace(event.position, found[1], found[0]))
                return LeafVerdict.VERIFIED
            self._remember(event.position, {tree.id: tree.size for tree in here.values()})
        for one in later:
            tree = kept[one.origin]
            if tree is None or tree.size < one.size:
                self._want(event, read_origin(one.origin))
        return self._wait(event, origin, row)

    def _remember(self, position: int, sizes: Mapping[int, int]) -> None:
        if position not in self._searched and len(self._searched) >= MOST_SEARCHED:
            del self._searched[next(iter(self._searched))]
        self._searched[position] = sizes

    def _opened_after(self, tree: Tree | WitnessedTree | None, node: str) -> list[WitnessedTree]:
        """Return the trees that a node opened after this one, all if it is None: a node moves events to a later one."""
        if node not in self._held:
            self._held[node] = read_of(self._conn, self._scope.topic_id, node)
        return [one for one in self._held[node] if tree is None or one.opened_at > tree.opened_at]

    def _find_held(self, origin: LogOrigin) -> WitnessedTree | None:
        name = str(origin)
        if name not in self._witnessed:
            self._witnessed[name] = find_witnessed(self._conn, self._scope.topic_id, name)
        return self._witnessed[name]

    def _is_current(self, kept: Tree, held: WitnessedTree, event: _Event) -> bool:
        """Return whether the tiles of a tree reach what is witnessed of it, or did when its node had sealed an event.

        A tree that grows all the time is always witnessed a little further than its tiles reach.
        """
        if kept.size >= held.size:
            return True
        reached = read_checkpoint_of(self._conn, kept.id)
        return reached is not None and reached.signed_at >= event.recorded_at + GRACE

    def _wait(self, event: _Event, origin: LogOrigin, row: CheckedRow) -> LeafVerdict | None:
        """Have the tiles fetched that cover an event, if they can prove anything here."""
        is_known = self._find_held(origin) is not None or origin.node in (*self._scope.pinned, event.path[-1])
        if not is_known or self._now > event.recorded_at + LONGEST or not self._want(event, origin):
            return LeafVerdict.UNPROVEN
        row.due = self._now + min(max(WAIT, (self._now - event.recorded_at) // 8), LONGEST_WAIT)
        return None

    def _want(self, event: _Event, origin: LogOrigin) -> bool:
        """Have a peer asked about a tree: its own node, or the node that brought the event; False if neither can be."""
        for node in (origin.node, event.path[-1]):
            if node in self._scope.peers:
                self._step.wanted[node, str(origin)] = None
                return True
        return False

    def _leaf_at(self, tree: Tree, index: int) -> bytes | None:
        number, at = divmod(index, TILE_WIDTH)
        if (tree.id, number) not in self._tiles:
            self._tiles[tree.id, number] = dict(read_tiles(self._conn, tree.id, 0, number, 1)).get(number, b"")
        return self._tiles[tree.id, number][at * HASH_SIZE : (at + 1) * HASH_SIZE] or None

    def _search(self, node: str, leaf: bytes, among: Mapping[str, int] | None = None) -> tuple[str, int] | None:
        """Return the tree of a node that has this leaf, with its index; None if none has it.

        `among`: which trees are searched, and how many of their leaves are not.
        """
        for origin, tree in self._known:
            if origin.node == node and (among is None or tree.origin in among):
                self._searches -= 1
                index = find_hash(self._conn, tree.id, leaf, after=among[tree.origin] if among else 0)
                if index:
                    return origin.tree, index
        return None


def _leaf_of(event: _Event) -> bytes:
    return hash_leaf(event_entry(digest(event.body.encode())))


def _correct(places: Sequence[LeafPlace], corrected: Sequence[LeafPlace], upto: int) -> str | None:
    """Return the places with those of some positions corrected; None if they do not fit into a row any more."""
    found = {place.position: place for place in places}
    for place in corrected:
        after = place.position + 1
        name, leaf = find_place(places, after)
        if after <= upto:
            found.setdefault(after, LeafPlace(after, leaf, name if leaf else ""))
        found[place.position] = place
    text = write_places(join_places(found[position] for position in sorted(found)))
    return text if read_places(text) and find_place(read_places(text), corrected[-1].position)[1] else None
