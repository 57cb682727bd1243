"""A version of a selection whose text was edited, in the state or in receipts, is found, and hides no event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from eventd.audit.report.findings import TWO_SELECTIONS, UNDECLARED_SELECTION, Kind
from eventd.audit.segments.ledger_summaries import summarize
from eventd.audit.segments.link_progress import MOST_TEXTS
from eventd.audit.segments.link_rows import ENDLESS, LinkRow, RowSelector
from eventd.audit.segments.plan import LakePlan, NodeEpoch, make_plan
from eventd.audit.verdicts.selection_verdicts import selection_discrepancies
from eventd.lake.manifest import GroupState, LakeHead, NodeState, PeerState, Selection, decode_selection
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import Row, columns_of, event_row

ALL, NOTHING = "{}", '{"types":["nothing"]}'
LINK = (NodeEpoch("a", "e"), "g", "b")


def receipt(number: int, version: int = 1, selection: str = ALL, **changes: Any) -> Row:
    """Return the receipt of a batch of one position, acknowledged at ten times its number."""
    row = {"number": number, "node": "a", "epoch": "e", "group": "g", "peer": "b", "after": number - 1, "upto": number}
    return {**row, "selector_version": version, "selection": selection, "acked_at": 10 * number, **changes}


def plan_of(declared: Sequence[tuple[int, int, str]], *segments: Sequence[Row], cursor: int = 9) -> LakePlan:
    """Return the plan of a lake: selections (version, declared_at, text) of the state, and segments of receipts."""
    selections = tuple(
        Selection(version=version, declared_at=at, selection=decode_selection(text)) for version, at, text in declared
    )
    peers = (PeerState(peer="b", selections=selections, cursor=cursor),)
    about: dict[str, Any] = {"instance": "i", "began_at": 0, "as_of": 900, "head": 9, "complete_until": 900}
    state = NodeState(node="a", epoch="e", groups=(GroupState(group="g", peers=peers),), **about)
    summaries = [summarize(Ledger.RECEIPTS, columns_of(Ledger.RECEIPTS, rows), limit=99) for rows in segments]
    return make_plan(Survey(LakeHead(id="l", made_at=0), [state], [], []), {NodeEpoch("a", "e"): summaries})


def link_of(plan: LakePlan) -> LinkRow:
    (link,) = plan.links[NodeEpoch("a", "e")]
    return link


def due(plan: LakePlan, *rows: Row) -> list[str]:
    """Return the ids of the events that the link has to have delivered."""
    selected = RowSelector(columns_of(Ledger.EVENTS, rows)).select(link_of(plan)).due
    return [row["id"] for row, one in zip(rows, selected.tolist(), strict=True) if one]


def found(plan: LakePlan) -> list[tuple[Kind, str, str, str, str]]:
    return [(one.kind, one.source, one.peer, one.id, one.detail) for one in selection_discrepancies(plan)]


EDITED = [(Kind.ALTERED, "a", "b", "e/selection/1", TWO_SELECTIONS)]


def test_a_selection_that_was_narrowed_in_the_state_is_found_and_the_wider_one_of_the_receipts_counts() -> None:
    plan = plan_of([(1, 5, NOTHING)], [receipt(1)])
    assert found(plan) == EDITED
    assert due(plan, event_row(1), event_row(2)) == ["e1", "e2"]


def test_one_that_was_narrowed_in_receipts_is_found_and_the_wider_one_of_the_state_counts() -> None:
    plan = plan_of([(1, 5, ALL)], [receipt(1, selection=NOTHING)])
    assert (found(plan), due(plan, event_row(1))) == (EDITED, ["e1"])


def test_so_is_one_with_two_texts_in_receipts_of_one_segment_or_of_two() -> None:
    one, other = receipt(1), receipt(2, selection=NOTHING)
    for segments in ([[one, other]], [[one], [other]]):
        plan = plan_of([], *segments)
        assert (found(plan), due(plan, event_row(1), event_row(2))) == (EDITED, ["e1", "e2"])


def test_so_is_one_with_two_texts_in_the_state() -> None:
    plan = plan_of([(1, 5, ALL), (1, 5, NOTHING)], [])
    assert (found(plan), due(plan, event_row(1))) == (EDITED, ["e1"])


def test_a_selection_that_an_operator_narrowed_has_a_new_version_and_hides_only_later_events() -> None:
    plan = plan_of([(1, 5, ALL), (2, 25, NOTHING)], [receipt(1), receipt(2), receipt(3, 2, NOTHING)])
    assert (found(plan), due(plan, event_row(1), event_row(2), event_row(3))) == ([], ["e1", "e2"])


def test_a_version_that_the_later_state_does_not_know_is_found_and_hides_no_event() -> None:
    plan = plan_of([(1, 5, ALL)], [receipt(1), receipt(2, 7, NOTHING)])
    assert found(plan) == [(Kind.ALTERED, "a", "b", "e/selection/7", UNDECLARED_SELECTION)]
    assert due(plan, event_row(2), event_row(3)) == ["e2", "e3"]


def test_a_version_that_was_first_used_after_the_state_was_written_is_no_fault() -> None:
    plan = plan_of([(1, 5, ALL)], [receipt(1), receipt(2, 7, NOTHING, acked_at=900)])
    assert found(plan) == []


def test_a_text_that_is_written_in_another_way_or_unknown_is_no_other_selection() -> None:
    written = ['{"types":[],"relay":false}', '{"subjectPrefixes":[], "types": []}', ""]
    plan = plan_of([(1, 5, ALL)], [receipt(at, selection=text) for at, text in enumerate(written, 1)])
    assert (found(plan), plan.selections[LINK]) == ([], {1: (ALL,)})


def test_few_of_many_texts_are_kept() -> None:
    many = [receipt(at, selection=json.dumps({"types": [f"t{at}"]})) for at in range(1, 100)]
    plan = plan_of([], many[:50], many[50:])
    assert (found(plan), len(plan.selections[LINK][1])) == (EDITED, MOST_TEXTS)


def test_a_version_was_declared_before_the_first_batch_by_it_whatever_the_state_says() -> None:
    """Else an event that expired before the wider selection was declared need not have been sent by a repair."""
    narrow, wide = '{"types": ["u"]}', ALL
    receipts = [receipt(1, 1, narrow), receipt(2, 1, narrow), receipt(3, 2, wide), receipt(4, 2, wide)]
    plan = plan_of([(1, 5, narrow), (2, 800, wide)], receipts)
    assert [version.declared_at for version in link_of(plan).versions] == [5, 30]
    expiring = [event_row(1, expires_at=29), event_row(2, expires_at=700)]
    assert due(plan, *expiring) == ["e2"]


def test_the_last_version_is_in_force_for_all_later_positions_also_if_it_has_several_texts() -> None:
    (version,) = link_of(plan_of([(1, 5, NOTHING)], [receipt(1)])).versions
    assert (version.upto, version.texts) == (ENDLESS, (NOTHING, ALL))
