"""What doctor says of the witnesses of histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventd.api.doctor.witnesses import (
    CHECKED_WITHIN,
    COVERED_WITHIN,
    MOST_SHOWN,
    NOT_COSIGNED,
    WitnessState,
    check_witnesses,
)
from eventd.log.witnesses.cosignatures import Witness
from eventd.log.witnesses.findings import HOLDS, HistoryFinding
from eventd.log.witnesses.keys import StoredKey
from eventd.log.witnesses.unproven import UnprovenEvents
from eventd.log.witnesses.waiting import WaitingTree
from eventd.witnessing.signing_gate import LAKE
from federation.history.notes import LOG_KEY, NoteKey

FINE = WitnessState(
    "edge",
    [Witness(1, peer, 9, 5, "", "", 5) for peer in ("b", "c")],
    {"b": 0, "c": 0},
    [StoredKey("b", kind, b"1" * 32, "owned", None, 1, None, None) for kind in ("log", "witness")],
    ["b", "c"],
    [],
)


def said(facts: WitnessState) -> list[tuple[str, str, str]]:
    return [(check.code, check.status.value, check.peer) for check in check_witnesses(facts)]


def test_witnesses_in_order_are_not_mentioned() -> None:
    assert said(FINE) == []


def test_a_peer_that_has_not_cosigned_for_an_hour_is_named() -> None:
    assert said(replace(FINE, ages={"b": NOT_COSIGNED - 1, "c": NOT_COSIGNED})) == [
        ("history-not-cosigned", "warn", "c")
    ]


def test_a_peer_that_keeps_no_history_has_a_remedy_of_its_own() -> None:
    older = Witness(1, "b", 9, 5, "older", "it keeps no history", 5)
    [check] = check_witnesses(replace(FINE, witnesses=[older, FINE.witnesses[1]], ages={"b": NOT_COSIGNED}))
    assert check.code == "history-not-cosigned"
    assert check.detail.endswith("has not cosigned what was signed: it keeps no history")
    assert check.remedy.startswith("upgrade the peer")


def test_stale_and_refusing_witnesses_are_named_with_the_reason() -> None:
    witnesses = [
        Witness(1, "b", 9, 5, "stale", "tile/0/000 is not stored", 5),
        Witness(1, "c", 0, 4, "refused", "no", 5),
    ]
    facts = replace(FINE, witnesses=witnesses)
    assert said(facts) == [("history-stale", "warn", "b"), ("history-refused", "warn", "c")]
    first, _ = check_witnesses(facts)
    assert "9 leaves" in first.detail
    assert "tile/0/000 is not stored" in first.detail


def test_a_changed_key_fails_with_both_keys_and_the_next_step() -> None:
    key = StoredKey("b", "log", b"1" * 32, "owned", None, 1, b"2" * 32, 3)
    facts = replace(FINE, keys=[key])
    assert said(facts) == [("history-key-changed", "fail", "b")]
    [check] = check_witnesses(facts)
    for public in (b"1" * 32, b"2" * 32):
        verifier_key = NoteKey("eventd/edge/b/tree", LOG_KEY, public).text()
        assert verifier_key.split("+", 2)[2] in check.detail, "as `routerctl log keys` prints it at b"
    assert "routerctl log witnesses reset b --group edge" in check.remedy
    assert "if the known key is right, pin that one first" in check.remedy


def test_a_key_that_differs_from_the_declared_one_needs_another_declaration() -> None:
    key = StoredKey("b", "log", b"1" * 32, "pinned", b"1" * 32, 1, b"2" * 32, 3)
    [check] = check_witnesses(replace(FINE, keys=[key]))
    assert "(pinned)" in check.detail
    assert "pin it in place of the known one" in check.remedy
    last = check.remedy.partition("; if the known one is right and in use again, ")[2]
    assert "routerctl log witnesses reset b --group edge" in last, "a reset alone forgets no declared key"


def test_findings_stay_until_they_are_confirmed() -> None:
    def finding(kind: str) -> HistoryFinding:
        return HistoryFinding(7, "o", "b", kind, 3, 3, "", "", "hub holds 5 leaves of o", 1, None)

    facts = replace(FINE, findings=[finding("fork"), finding("rolled_back"), finding("older_copy")])
    assert [code for code, _, _ in said(facts)] == ["history-fork", "history-rolled-back", "history-older-copy"]
    fork, rolled_back, own = [check.remedy for check in check_witnesses(facts)]
    assert fork.startswith("ask the operator of b whether two nodes run with its name")
    assert rolled_back.startswith("ask the operator of b, who can get abandoned events back")
    assert own.startswith("find out why the database is an older copy, or which other node runs with this node's name")
    assert "routerctl verify --peer hub --pull --group edge" in own


def test_an_older_copy_that_the_lake_shows_is_not_healed_from_a_peer_of_this_name() -> None:
    detail = f"{LAKE}{HOLDS}5 leaves of o"
    shown = replace(FINE, findings=[HistoryFinding(7, "o", "b", "older_copy", 3, 5, "", "", detail, 1, None)])
    [check] = check_witnesses(shown)
    assert f"--peer {LAKE}" not in check.remedy
    assert "each peer: `routerctl verify --peer NODE --pull --group edge`" in check.remedy
    assert "the lake has what was shipped: docs/operations/backup.md#events-after-a-restore" in check.remedy


@pytest.mark.parametrize(
    ("peers", "step"),
    [
        (["b", "c"], "back there with `routerctl verify --peer me --pull --group edge`"),
        (
            ["hub"],
            "from the peer that relays them, as hub does, with `routerctl verify --peer hub --pull --group edge`",
        ),
        (["hub", "x"], "back there from the peer that relays them with `routerctl verify --peer RELAY --pull"),
    ],
)
def test_abandoned_events_come_back_from_a_peer_of_their_node(peers: list[str], step: str) -> None:
    found = HistoryFinding(7, "o", "b", "rolled_back", 3, 1, "", "", "abandoned", 1, None)
    [check] = check_witnesses(replace(FINE, findings=[found], node="me", peers=peers))
    assert step in check.remedy


def test_a_refuted_event_fails_and_names_the_node_that_brought_it() -> None:
    facts = replace(FINE, findings=[HistoryFinding(7, "o", "b", "refuted", 3, 1, "", "", "no leaf has it", 1, None)])
    assert said(facts) == [("history-refuted", "fail", "b")]
    [check] = check_witnesses(facts)
    assert check.remedy.startswith("ask the operator of b where the event comes from")


def test_checks_that_are_late_or_have_no_declared_key_are_named() -> None:
    assert said(replace(FINE, overdue=CHECKED_WITHIN)) == []
    assert said(replace(FINE, overdue=CHECKED_WITHIN + 1)) == [("history-check-behind", "warn", "")]
    assert list(check_witnesses(replace(FINE, overdue=CHECKED_WITHIN + 1), running=False)) == []
    assert said(replace(FINE, overdue=0, pins=False)) == [("history-verify-unpinned", "warn", "")]
    assert said(replace(FINE, pins=False)) == [], "a node that only records needs no pins"


def test_weak_keys_and_a_lack_of_third_nodes_are_no_faults() -> None:
    shared = [replace_source(key) for key in FINE.keys]
    facts = replace(FINE, keys=shared, witnesses=FINE.witnesses[:1])
    assert said(facts) == [("history-keys-shared", "pass", ""), ("history-split-view", "pass", "")]
    _, alone = check_witnesses(facts)
    assert "of b:" in alone.detail


def replace_source(key: StoredKey) -> StoredKey:
    return key._replace(source="shared")


WAITING = WaitingTree("c", "eventd/edge/c/t", "e1", "hub", 7, COVERED_WITHIN + 1, 0, 0, "AfKey", "pinned", "")


def reason(waiting: WaitingTree) -> str:
    [check] = check_witnesses(replace(FINE, overdue=0, waiting=[waiting]))
    assert (check.code, check.name, check.peer) == ("history-check-waiting", "edge/c history", "c")
    assert check.detail.startswith("the event e1 of c, which hub brought, has waited for 2m0s for its check")
    assert "--history waiting" in check.remedy
    return check.detail.partition("behind it: ")[2]


def test_trees_with_waiting_events_that_are_not_shown_are_counted() -> None:
    waiting = [WAITING._replace(node=f"n{number}") for number in range(MOST_SHOWN + 3)]
    *shown, rest = check_witnesses(replace(FINE, overdue=0, waiting=waiting))
    assert [check.peer for check in shown] == [f"n{number}" for number in range(MOST_SHOWN)]
    assert rest.detail.startswith("events of 3 further trees have waited")


def test_an_event_that_waits_says_which_key_or_which_checkpoint_is_missing() -> None:
    assert said(replace(FINE, overdue=0, waiting=[WAITING._replace(age=COVERED_WITHIN)])) == []
    assert list(check_witnesses(replace(FINE, overdue=0, waiting=[WAITING]), running=False)) == []
    assert "signed with the pinned key AfKey of c has arrived" in reason(WAITING)
    covered = reason(WAITING._replace(refused="AfOther", held=9))
    assert "hashes up to size 0" in covered, "a checkpoint covers the event, whatever key was refused"
    refused = reason(WAITING._replace(refused="AfOther"))
    assert refused == "c shows the key AfOther, which is refused: the known one is AfKey (pinned)"
    assert reason(WAITING._replace(key="", source="")).endswith("no key of c is pinned")
    assert "the last checkpoint that has arrived has size 7" in reason(WAITING._replace(held=7))
    assert "hub says that it is leaf 7 of eventd/edge/c/t, and this node has hashes up to size 3" in reason(
        WAITING._replace(held=8, tiles=3)
    )
    assert "a later tree of c" in reason(WAITING._replace(held=8, tiles=8))


def test_an_event_that_came_straight_from_its_node_needs_its_link_and_no_pin() -> None:
    direct = WAITING._replace(key="", source="", sender="c")
    [check] = check_witnesses(replace(FINE, overdue=0, waiting=[direct]))
    assert check.detail.endswith("no checkpoint of eventd/edge/c/t has arrived")
    assert check.remedy.startswith(
        "see the link from c to this node with `routerctl federation links` at c, and whether c signs its history, with"
        " doctor there"
    )
    assert "pin" not in check.remedy


def test_unproven_events_name_the_node_that_brought_them_and_ask_it_for_a_proof() -> None:
    [check] = check_witnesses(replace(FINE, overdue=0, unproven=[UnprovenEvents("hub", 2, "e9", "c")]))
    assert (check.code, check.status.value, check.peer) == ("history-events-unproven", "warn", "hub")
    assert check.detail.startswith(
        "nothing proves 2 events that hub brought in the last day, among the newest 2,000 records: the last one is e9,"
    )
    assert "`routerctl prove e9 --peer hub --group edge`" in check.remedy
    assert "--history unproven" in check.remedy


def test_no_proof_is_asked_of_a_peer_that_speaks_v1() -> None:
    [check] = check_witnesses(replace(FINE, unproven=[UnprovenEvents("b", 2, "e9", "c")], overdue=0, v1_peers=["b"]))
    assert check.detail.endswith("over protocol v1, events come without what proves them")
    assert check.remedy.startswith("upgrade b to a release that speaks v2; to list them: ")
