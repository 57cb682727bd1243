"""A changed value is found as the page on fields says: in rows of real nodes, in their states and in their manifests.

Each value is changed with a manifest that fits. Findings that name a row are looked for in one audit of many changes,
each in a batch of its own; other changes have an audit each. What counts is the difference to the audit of the lake
without the change. All fields of which no change is found are changed in one audit, which finds nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventd.audit.report.findings import Finding
from eventd.audit.report.report import Report
from eventd.lake.manifest import (
    GroupState,
    LostRows,
    Manifest,
    NodeState,
    PeerState,
    SegmentRange,
    Selection,
    SelectionConditions,
)
from eventd.runtime.clock import SECOND
from tests.support.campaign.column_checks import LEDGERS
from tests.support.campaign.damages import DAMAGES
from tests.support.campaign.federation import NODES, Federation
from tests.support.campaign.field_checks import EDIT, FieldTable
from tests.support.campaign.file_checks import FILES
from tests.support.campaign.lake_files import LakeFiles, Row
from tests.support.campaign.ledgers import open_ledgers
from tests.support.campaign.stage import audit_lake, set_scene

State = dict[str, Any]
NAMING = ("altered", "forged", "disagreement")
"""The kinds of findings that name the row, or its batch."""
ALONE = "id"
"""The field that is changed alone: findings name the event of a row with another id by the events beside it."""
OTHER_WORDS: Mapping[str, str] = {"edge": "line", "a": "b", "b": "c", "c": "a", "t": "u", "u": "t", "v2": "v1"}
NEW_VALUES: Mapping[str, Any] = {
    "receipt_alg": "hmac-sha256",
    "receipt_digest": "0" * 64,
    "body_digest": "sha-256=:AAAA:",
    "exceptions": '[[1,"expired"]]',
}


def another(name: str, value: Any) -> Any:
    """Return another value of the same type; a text is another one for each field."""
    match value:
        case _ if name in NEW_VALUES:
            return NEW_VALUES[name]
        case bool():
            return not value
        case int():
            return value + 1
        case datetime():
            return value + timedelta(seconds=1)
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case _:
            return OTHER_WORDS.get(value, f"another-{name}")


@pytest.fixture
def lake(federation: Federation, tmp_path: Path) -> LakeFiles:
    shutil.copytree(federation.lake, tmp_path / "lake")
    return LakeFiles(tmp_path / "lake")


def audit(federation: Federation, lake: LakeFiles) -> Report:
    return audit_lake(lake.root, lake.root.parent / "out", federation.now, None, keys=federation.keys)


@pytest.fixture(scope="session")
def sound(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of the lake as it is, which finds nothing."""
    report = audit_lake(federation.lake, tmp_path_factory.mktemp("sound"), federation.now, None, keys=federation.keys)
    assert (report.verdict, report.findings, report.troubles) == ("complete", (), ())
    return report


def new_findings(report: Report, before: Report) -> list[Finding]:
    """Return the findings that the report of the lake without the change does not have."""
    return [one for one in report.findings if one not in before.findings]


def kinds(report: Report, before: Report) -> set[str]:
    """Return the kinds of the new findings; without any, the verdict if it is another one than before."""
    verdict = {report.verdict} if report.verdict != before.verdict else set()
    return {one.kind.value for one in new_findings(report, before)} or verdict


def edited(table: FieldTable, *, naming: bool) -> list[str]:
    """Return the fields of a table that these tests change and that a check finds, naming the row or not."""
    return [
        name
        for name, check in table.checks.items()
        if check.proof == EDIT and check.verdict and (check.verdict in NAMING and name != ALONE) is naming
    ]


def change_row(lake: LakeFiles, ledger: str, row: Row, **values: Any) -> None:
    """Change values of one row."""
    lake.change(ledger, row["node"], row.__eq__, lambda one: one | values)


def ordinary_rows(lake: LakeFiles, ledger: str) -> Iterator[Row]:
    """Yield rows that are like most, not the first or last of a segment, each of another batch and event."""
    seen = set[str]()
    for segment in (one for node in NODES for one in lake.segments(ledger, node)):
        for row in segment.rows()[1:-1]:
            names = _names_of(ledger, row)
            if row["group"] == "edge" and not names & seen and _is_ordinary(ledger, row):
                seen |= names
                yield row


def _is_ordinary(ledger: str, row: Row) -> bool:
    match ledger:
        case "events":
            return bool(row["own"] and row["payload"])
        case "deliveries":
            return bool(row["outcome"] == "delivered" and row["receipt_digest"] and not row["repair"])
        case "receipts":
            return bool(row["receipt"] and row["sent"] and not row["repair"])
        case _:
            return bool(row["accepted"] and not row["repair"])


class _Edit(NamedTuple):
    """A changed field, and the ids of its row that a finding may have: before and after the change."""

    field: str
    names: set[str]


def _names_of(ledger: str, row: Row) -> set[str]:
    fields = {"events": ("id",), "deliveries": ("id", "batch_id")}.get(ledger, ("batch_id",))
    return {row[field] for field in fields}


@pytest.mark.parametrize("ledger", ["events", "deliveries", "receipts", "inbound"])
def test_a_changed_value_is_found_and_its_row_named(
    federation: Federation, sound: Report, lake: LakeFiles, ledger: str
) -> None:
    rows = ordinary_rows(lake, ledger)
    edits = []
    for field in edited(LEDGERS[ledger], naming=True):
        row = next(rows)
        value = another(field, row[field])
        assert value != row[field]
        change_row(lake, ledger, row, **{field: value})
        edits.append(_Edit(field, _names_of(ledger, row) | _names_of(ledger, row | {field: value})))
    assert edits
    each = [name for one in edits for name in one.names]
    assert len(each) == len({*each}), "a finding names the row of one change only"
    found = [(one.kind, {*one.ids}) for one in new_findings(audit(federation, lake), sound)]
    checks = LEDGERS[ledger].checks
    missed = [
        one.field
        for one in edits
        if not any(kind == checks[one.field].verdict and one.names & ids for kind, ids in found)
    ]
    assert missed == []


SINGLE_EDITS = [
    (ledger, field)
    for ledger in ("events", "deliveries", "receipts", "inbound")
    for field in edited(LEDGERS[ledger], naming=False)
]


@pytest.mark.parametrize(("ledger", "field"), SINGLE_EDITS)
def test_a_changed_value_is_found(
    federation: Federation, sound: Report, lake: LakeFiles, ledger: str, field: str
) -> None:
    row = next(ordinary_rows(lake, ledger))
    value = another(field, row[field])
    assert value != row[field]
    change_row(lake, ledger, row, **{field: value})
    assert LEDGERS[ledger].checks[field].verdict in kinds(audit(federation, lake), sound)


def test_all_fields_that_edits_prove_are_changed_here() -> None:
    tables = {name for name, table in (*LEDGERS.items(), *FILES.items()) if any(_edits(table))}
    assert tables == {"events", "deliveries", "receipts", "inbound", "gaps", LostRows, Manifest, *_kinds_of_states()}


def _edits(table: FieldTable) -> list[str]:
    return edited(table, naming=True) + edited(table, naming=False)


def _kinds_of_states() -> set[type]:
    return {kind for kind, _ in STATES} | {SelectionConditions}


def _of_group(change: Callable[[State], None]) -> Callable[[State], None]:
    return lambda state: change(next(group for group in state["groups"] if group["group"] == "edge"))


def _of_peer(change: Callable[[State], None]) -> Callable[[State], None]:
    return _of_group(lambda group: change(group["peers"][0]))


STATES: Mapping[tuple[type, str], Callable[[State], None]] = {
    (NodeState, "schema"): lambda state: state.update(schema=2),
    (NodeState, "node"): lambda state: state.update(node="another"),
    (NodeState, "epoch"): lambda state: state.update(epoch="another"),
    (NodeState, "head"): lambda state: state.update(head=state["head"] + 1),
    (GroupState, "group"): _of_group(lambda group: group.update(group="another")),
    (GroupState, "last_seq"): _of_group(lambda group: group.update(last_seq=group["last_seq"] + 1)),
    (PeerState, "peer"): _of_peer(lambda peer: peer.update(peer="another")),
    (SegmentRange, "after"): lambda state: state["segments"]["events"].update(after=-1),
    (SegmentRange, "upto"): lambda state: state["segments"]["events"].update(upto=state["head"] + 1),
}


CONDITIONS: Mapping[str, State] = {
    "types": {"types": ["another"]},
    "subject_prefixes": {"subjectPrefixes": ["another"]},
    "sources": {"sources": ["another"]},
    "payload": {"payload": {"n": "another"}},
    "relay": {"relay": True},
}
"""Other selections, by the condition that they change."""


def test_all_fields_of_states_are_changed() -> None:
    structs = (NodeState, GroupState, PeerState, SegmentRange)
    wanted = {(kind, name) for kind in structs for name in _edits(FILES[kind])}
    assert {*STATES} == wanted
    assert {*CONDITIONS} == {*_edits(FILES[SelectionConditions])}


def test_a_changed_selection_of_a_state_is_found(federation: Federation, sound: Report, lake: LakeFiles) -> None:
    """Each condition in the selection of another link."""
    links = [(node, peer) for node in NODES for peer in NODES if peer != node]
    assert len(CONDITIONS) <= len(links)
    changed = dict(zip(CONDITIONS, links, strict=False))
    for condition, (node, other) in changed.items():

        def change(group: State, other: str = other, condition: str = condition) -> None:
            (peer,) = (one for one in group["peers"] if one["peer"] == other)
            peer["selections"][-1].update(selection=CONDITIONS[condition])

        lake.set_state(node, _of_group(change))
    found = {(one.kind.value, one.source, one.peer) for one in new_findings(audit(federation, lake), sound)}
    checks = FILES[SelectionConditions].checks
    missed = [name for name, link in changed.items() if (checks[name].verdict, *link) not in found]
    assert missed == []


@pytest.mark.parametrize(("kind", "field"), STATES)
def test_a_changed_value_of_a_state_is_found(
    federation: Federation, sound: Report, lake: LakeFiles, kind: type, field: str
) -> None:
    lake.set_state("b", STATES[kind, field])
    assert FILES[kind].checks[field].verdict in kinds(audit(federation, lake), sound)


MANIFESTS: Mapping[str, Callable[[State], Any]] = {
    "schema": lambda facts: 2,
    "book": lambda facts: "refusals",
    "node": lambda facts: "another",
    "epoch": lambda facts: "another",
    "after": lambda facts: facts["after"] - 1,
    "upto": lambda facts: facts["upto"] + 1,
    "rows": lambda facts: facts["rows"] - 1,
    "bytes": lambda facts: facts["bytes"] + 1,
    "sha256": lambda facts: "0" * 64,
    "slots": lambda facts: [slot + 1 for slot in facts["slots"]],
    "times": lambda facts: [time + 1 for time in facts["times"]],
    "leaves": lambda facts: True,
    "replaces": lambda facts: ["another"],
}


def test_a_changed_value_of_a_manifest_makes_its_segment_corrupt(
    federation: Federation, sound: Report, lake: LakeFiles
) -> None:
    segments = [one for node in NODES for ledger in ("events", "deliveries") for one in lake.segments(ledger, node)]
    changed = {}
    for (field, change), segment in zip(MANIFESTS.items(), segments, strict=False):
        changed[segment.name] = field
        segment.describe(**{field: change(segment.facts)})
    assert {*changed.values(), "lost"} == {*edited(FILES[Manifest], naming=False)}
    corrupt = [one for one in new_findings(audit(federation, lake), sound) if one.kind == "corrupt"]
    named = {id.removesuffix(".json") for one in corrupt for id in one.ids}
    assert [field for name, field in changed.items() if name not in named] == []


def test_a_loss_that_a_manifest_declares_leaves_its_rows_unproven(
    federation: Federation, sound: Report, lake: LakeFiles
) -> None:
    segment = lake.segments("events", "b")[1]
    segment.describe(lost=[["edge", "", segment.facts["epoch"], 0, segment.facts["after"], 1, "events_lost"]])
    assert kinds(audit(federation, lake), sound) == {FILES[Manifest].checks["lost"].verdict}


LOSSES: Mapping[str, Callable[[Row], Row]] = {
    "group": lambda row: {"group": "line" if row["group"] == "edge" else "edge"},
    "epoch": lambda row: {"epoch": "another"},
    "after": lambda row: {"after": row["upto"] - 1},
    "upto": lambda row: {"upto": row["after"] + 1},
}
"""Other values of a declared loss, by its field in manifests."""
IN_GAPS: Mapping[str, str] = {"epoch": "gap_epoch"}
"""The names of fields that `gaps` calls otherwise."""


@pytest.fixture(scope="module")
def lossy(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which a node declares events that were evicted before they were shipped, in `gaps` and manifests."""
    feigned = next(damage for damage in DAMAGES if damage.name == "retention-feigned")
    with open_ledgers(federation.lake) as ledgers:
        scene = set_scene(federation, feigned, tmp_path_factory.mktemp("lossy"), ledgers)
        feigned.inflict(scene)
        federation.ship(scene.urls, scene.lake.root)
    return scene.lake.root


def change_losses(lake: LakeFiles, change: Callable[[Row], Row]) -> None:
    """Change the losses that the nodes declare, in `gaps` and in manifests alike."""
    for segment in (one for node in NODES for one in lake.segments("events", node)):
        lost = [dict(zip(LostRows.__struct_fields__, row, strict=True)) for row in segment.facts["lost"]]
        segment.describe(lost=[[*(row | change(row)).values()] for row in lost])
    for segment in (one for node in NODES for one in lake.segments("gaps", node)):
        segment.write([_changed_gap(row, change) for row in segment.rows()])


def _changed_gap(row: Row, change: Callable[[Row], Row]) -> Row:
    return row | {IN_GAPS.get(name, name): value for name, value in change(row).items()}


@pytest.fixture(scope="module")
def declared(federation: Federation, sound: Report, lossy: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of that lake as it is: the losses explain the holes, whose rows are unproven."""
    report = audit_lake(lossy, tmp_path_factory.mktemp("declared"), federation.now, None, keys=federation.keys)
    assert kinds(report, sound) == {"unproven"}
    return report


@pytest.mark.parametrize("field", LOSSES)
def test_a_changed_loss_no_longer_explains_a_hole(
    federation: Federation, lossy: Path, declared: Report, tmp_path: Path, field: str
) -> None:
    shutil.copytree(lossy, tmp_path / "lake")
    lake = LakeFiles(tmp_path / "lake")
    change_losses(lake, LOSSES[field])
    assert FILES[LostRows].checks[field].verdict in kinds(audit(federation, lake), declared)


def test_all_fields_of_losses_are_changed() -> None:
    assert {*edited(FILES[LostRows], naming=False)} == {*LOSSES}
    assert {*edited(LEDGERS["gaps"], naming=False)} == {IN_GAPS.get(name, name) for name in LOSSES}


def _of_selection(change: Callable[[State], None]) -> Callable[[State], None]:
    return _of_peer(lambda peer: change(peer["selections"][-1]))


def _add_one(state: State) -> None:
    state["books"] = {name: upto + 1 for name, upto in state["books"].items()}


UNCHECKED: Mapping[type, Mapping[str, Callable[[State], None]]] = {
    NodeState: {
        "instance": lambda state: state.update(instance="another"),
        "began_at": lambda state: state.update(began_at=state["began_at"] + SECOND),
        "books": _add_one,
        "later_books": lambda state: state.update(later_books={"history": 1}),
        "payloads": lambda state: state.update(payloads=not state["payloads"]),
    },
    GroupState: {
        "evicted_seq": _of_group(lambda group: group.update(evicted_seq=group["last_seq"])),
        "tree": _of_group(lambda group: group.update(tree="another")),
    },
    PeerState: {
        "relay": _of_peer(lambda peer: peer.update(relay=True)),
        "paused": _of_peer(lambda peer: peer.update(paused=True)),
        "state": _of_peer(lambda peer: peer.update(state="blocked")),
        "reason": _of_peer(lambda peer: peer.update(reason="another")),
        "since": _of_peer(lambda peer: peer.update(since=peer["since"] + SECOND)),
        "created_at": _of_peer(lambda peer: peer.update(created_at=peer["created_at"] + SECOND)),
        "repairs": _of_peer(lambda peer: peer.update(repairs=[[0, 5]])),
    },
    Selection: {
        "version": _of_selection(lambda selection: selection.update(version=selection["version"] + 1)),
        "declared_at": _of_selection(lambda selection: selection.update(declared_at=selection["declared_at"] + SECOND)),
    },
}


def change_unchecked_fields(lake: LakeFiles) -> None:
    """Change all fields of states, manifests and rows, of which no check finds a change."""
    for changes in UNCHECKED.values():
        for change in changes.values():
            lake.set_state("b", change)
    for segment in (one for node in NODES for one in lake.segments("events", node)):
        segment.describe(written_at=segment.facts["written_at"] + SECOND, payloads=not segment.facts["payloads"])
    for ledger in ("events", "deliveries", "receipts", "inbound"):
        row = next(ordinary_rows(lake, ledger))
        values = {field: another(field, row[field]) for field in LEDGERS[ledger].unchecked if field in row}
        change_row(lake, ledger, row, **values)


def test_changed_values_that_nothing_is_compared_with_are_not_found(
    federation: Federation, sound: Report, lake: LakeFiles
) -> None:
    for kind, changes in UNCHECKED.items():
        assert {*FILES[kind].unchecked} == {*changes}
    assert {*FILES[Manifest].unchecked} == {"written_at", "payloads"}
    change_unchecked_fields(lake)
    report = audit(federation, lake)
    assert (report.verdict, report.findings, report.troubles) == ("complete", (), ())
    assert report.totals == sound.totals
    assert report.totals.completeness == 100.0
