"""The header `Eventd-Leaves` of the batches of one link: where the events of a page have their leaves."""

from __future__ import annotations

from eventd.log.core.eventlog import EventLog
from eventd.log.core.wire_page import WirePage
from eventd.log.history.hints import read_hints
from eventd.log.history.trees import read_tree_ids
from federation.history.leaf_hints import LeafPlace, merge_places, write_places


class LeafHints:
    """Writes the hints of pages; it remembers the ids of this node's trees, which never change."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}

    async def hints_of(self, log: EventLog, topic_id: int, page: WirePage, after: int, *, own: bool) -> str:
        """Return the header of a page that begins after a position; empty if nothing is known.

        Of relayed events, which a page of `own` ones does not have, the hints are passed on as they came. Leaves of a
        tree that may turn out to be an older copy are left out: their events may get leaves in another tree.
        """
        unsettled = set(log.unsettled_trees)
        missing = {place.tree for place in page.leaves if place.leaf} - self._ids.keys()
        if missing:
            self._ids |= await log.database.read_for_delivery(read_tree_ids, missing)
        relayed = [] if own else await log.database.read_for_delivery(read_hints, topic_id, after, page.upto)
        mine = list[LeafPlace]()
        for at, leaf, tree in page.leaves:
            name = self._ids.get(tree, "") if leaf and tree not in unsettled else ""
            mine.append(LeafPlace(at, leaf if name else 0, name))
        return write_places(merge_places(mine, relayed))
