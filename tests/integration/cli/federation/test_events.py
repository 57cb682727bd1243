"""The commands `federation event`: emit, list, deliveries, prune."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

import pytest

from eventd.cli.federation.events import Status
from eventd.log.delivery.states import DeliveryState
from tests.integration.cli.conftest import EDGE, Control, everywhere

HEADER = ["ID", "GROUP", "SOURCE", "TYPE", "SUBJECT", "OBSERVED", "EXPIRES"]


@pytest.fixture
def edge(routerctl: Control) -> Control:
    """A node with the group edge and the peer cloud."""
    routerctl.edge()
    return routerctl


def lines_of(*events: object) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


@everywhere
def test_an_emitted_event_is_shown_as_it_is_stored(edge: Control) -> None:
    told = edge(
        *("federation", "event", "emit", "--group", "edge", "--type", "routerd.client.ipv4.observed"),
        *("--subject", "10.88.60.9/32", "--id", "i1", "--dedupe-key", "k", "--source-node", "leaf"),
        *("--payload", "mac=aa:bb", "--payload", "note=a=b", "--payload", "empty="),
        *("--ttl", "90s", "--observed-at", "2026-05-30T12:13:20+02:00"),
    )
    header, row = told.lines
    assert header.split() == HEADER
    assert row.split()[:5] == ["i1", "edge", "leaf", "routerd.client.ipv4.observed", "10.88.60.9/32"]
    assert row.split()[5:] == ["2026-05-30T10:13:20Z", "2026-05-30T10:14:50Z"]
    (event,) = edge("fed", "event", "list", "--include-expired", "-o", "json").json
    assert {name: event[name] for name in event if name not in ("recordedAt", "seq")} == {
        "id": "i1",
        "group": "edge",
        "sourceNode": "leaf",
        "type": "routerd.client.ipv4.observed",
        "subject": "10.88.60.9/32",
        "dedupeKey": "k",
        "payload": {"empty": "", "mac": "aa:bb", "note": "a=b"},
        "observedAt": "2026-05-30T10:13:20Z",
        "expiresAt": "2026-05-30T10:14:50Z",
        "path": [],
    }


def test_the_group_and_the_source_need_not_be_said(edge: Control) -> None:
    event = edge("fed", "event", "emit", "--type", "t", "-o", "json").json
    assert (event["group"], event["sourceNode"], event["expiresAt"]) == ("edge", "onprem", "0001-01-01T00:00:00Z")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", event["id"])
    edge("apply", "-f", edge.file(EDGE.split("---")[0].replace("edge", "other"), "other.yaml"))
    told = edge("fed", "event", "emit", "--type", "t", code=2)
    assert told.err.startswith("error: name the group with --group: edge, other (see routerctl fed event emit --help)")


def test_an_id_that_is_there_already_is_noted_or_refused(edge: Control) -> None:
    emit = ("fed", "event", "emit", "--id", "i", "--observed-at", "2026-05-30T10:00:00Z")
    assert edge(*emit, "--type", "t", "--ttl", "1h").err == ""
    assert edge(*emit, "--type", "t", "--ttl", "2h").err == "note: i exists already: refreshed\n"
    again = edge(*emit, "--type", "t", "--ttl", "1h")
    assert again.err == "note: i exists already: duplicate\n"
    assert again.lines[1].endswith("2026-05-30T12:00:00Z")
    assert edge(*emit, "--type", "other", code=1).err.startswith("error: the id i is taken in group edge")


WRONG = [
    (["--type", "t", "--group", "egde"], 3, "error: EventGroup egde is not declared (did you mean edge?)"),
    ([], 2, "error: add --type, or read events with --stdin"),
    (["--type", "t", "--payload", "novalue"], 2, "error: --payload 'novalue' is not KEY=VALUE"),
    (["--type", "t", "--payload", " =x"], 2, "error: --payload ' =x' is not KEY=VALUE"),
    (["--type", "t", "--ttl", "5"], 1, "error: the event cannot be stored: ttl '5' is not a duration; write 30s"),
    (["--type", "t", "--observed-at", "now"], 1, "error: the event cannot be stored: 'now' is not an RFC 3339"),
    (["--type", "t" * 600], 1, "error: the event cannot be stored: federation event type is longer than 512"),
    (["--stdin", "--id", "i"], 2, "error: --id applies to one event: with --stdin, each line has its own id"),
    (["--stdin", "--ttl", "soon"], 1, "error: --ttl 'soon' is not a duration; write 30s, 5m or 168h"),
    (["extra"], 2, "error: got unexpected extra argument"),
]


def test_a_wrong_emit_is_one_line(edge: Control) -> None:
    for arguments, code, message in WRONG:
        told = edge("fed", "event", "emit", *arguments, code=code)
        assert told.err.startswith(message), arguments
        assert told.err.count("\n") == 1, arguments
    assert edge("fed", "event", "list", "--include-expired", "-o", "json").json == []


def test_many_events_come_from_the_standard_input(edge: Control) -> None:
    given = lines_of(*({"type": "t", "id": f"e{n:05}", "payload": {"n": str(n)}} for n in range(2300)))
    told = edge("fed", "event", "emit", "--stdin", stdin=given)
    assert told.lines == ["2,300 events accepted: 2,300 new"]
    listed = edge("fed", "event", "list", "--limit", "0", "-o", "json").json
    assert [event["id"] for event in listed] == [f"e{n:05}" for n in range(2300)]
    assert edge("fed", "event", "emit", "--stdin", "-o", "json", stdin=given).json["duplicate"] == 2300


def test_every_bad_line_is_named_and_the_good_ones_are_stored(edge: Control) -> None:
    given = (
        lines_of({"type": "t", "id": "e1"})
        + "\n   \n"
        + lines_of({"typo": "t"}, {"type": "t", "id": "e2"}, ["no"])
        + "{broken\n"
        + lines_of({"type": "other", "id": "e1"}, {"type": "t", "group": "nope"})
        + '{"type": "t", "id": "e3"}'
    )
    told = edge("fed", "event", "emit", "--stdin", stdin=given, code=1)
    assert told.lines == ["3 events accepted: 3 new"]
    assert sorted(told.err.splitlines()[:-1]) == [
        "line 4: unknown member typo (did you mean type?)",
        "line 6: is not a JSON object",
        "line 7: is not JSON: object keys must be strings (byte 1)",
        "line 8: the id e1 belongs to an event with other content or of another source",
        "line 9: EventGroup nope is not declared",
    ]
    assert told.err.splitlines()[-1] == "error: not stored: 5 lines"
    assert edge("fed", "event", "list", "-o", "name").lines == ["e1", "e2", "e3"]
    counts = edge("fed", "event", "emit", "--stdin", "-o", "json", stdin=b'{"type":"\xff"}\n', code=1).json
    assert counts["bad"][0]["line"] == 1
    assert counts["badLines"] == 1


def test_a_group_that_is_not_there_is_said_once_and_not_of_every_line(edge: Control) -> None:
    told = edge("fed", "event", "emit", "--stdin", "-g", "egde", stdin=lines_of({"type": "t"}, {"type": "t"}), code=3)
    assert told.err.startswith("error: EventGroup egde is not declared (did you mean edge?")
    assert told.err.count("\n") == 1


def test_options_beside_the_standard_input_are_for_lines_that_lack_them(edge: Control) -> None:
    given = lines_of({"id": "a"}, {"id": "b", "type": "own", "subject": "x", "sourceNode": "leaf", "ttl": "5m"})
    options = ("--type", "t", "--subject", "s", "--source-node", "hub", "--ttl", "1h")
    told = edge("fed", "event", "emit", "--stdin", *options, stdin=given)
    assert told.lines == ["2 events accepted: 2 new"]
    listed = edge("fed", "event", "list", "-o", "json").json
    found = {event["id"]: (event["type"], event["subject"], event["sourceNode"], lives_for(event)) for event in listed}
    assert found == {"a": ("t", "s", "hub", timedelta(hours=1)), "b": ("own", "x", "leaf", timedelta(minutes=5))}


def lives_for(event: dict[str, str]) -> timedelta:
    return datetime.fromisoformat(event["expiresAt"]) - datetime.fromisoformat(event["observedAt"])


def test_an_empty_input_is_nothing(edge: Control) -> None:
    assert edge("fed", "event", "emit", "--stdin").lines == ["0 events accepted"]


def test_a_listing_of_one_node_can_be_emitted_on_another(edge: Control) -> None:
    edge("fed", "event", "emit", "--type", "t", "--id", "i", "--payload", "k=v")
    (event,) = edge("fed", "event", "list", "-o", "json").json
    told = edge("fed", "event", "emit", "--stdin", stdin=json.dumps(event))
    assert told.lines == ["1 event accepted: 1 duplicate"]


def test_lists_have_limits_tokens_and_filters(edge: Control) -> None:
    given = lines_of(*({"type": "a" if n % 2 else "b", "id": f"e{n}", "subject": f"10.{n}"} for n in range(6)))
    edge("fed", "event", "emit", "--stdin", stdin=given)
    newest = edge("fed", "event", "list", "--limit", "2", "-o", "name")
    assert newest.lines == ["e4", "e5"], "an operator wants the newest; they stand in the order of the log"
    token = re.search(r"^note: group edge has older rows: continue with --group edge --before (\S+) ", newest.err)
    assert token is not None
    before = edge("fed", "event", "list", "--limit", "3", "--before", token[1], "-o", "name")
    assert before.lines == ["e1", "e2", "e3"]
    token = re.search(r"--before (\S+) ", before.err)
    assert token is not None
    before = edge("fed", "event", "list", "--before", token[1], "-o", "name")
    assert (before.lines, before.err) == (["e0"], "")
    turned = edge("fed", "event", "list", "--limit", "2", "--newest", "-o", "name")
    assert turned.lines == ["e5", "e4"]
    token = re.search(r"--newest --before (\S+) ", turned.err)
    assert token is not None
    assert edge("fed", "event", "list", "--newest", "--before", token[1], "-o", "name").lines == [
        "e3",
        "e2",
        "e1",
        "e0",
    ]
    assert edge("fed", "event", "list", "--newest", "--after", token[1], "-o", "name").lines == ["e3", "e2", "e1", "e0"]
    assert edge("fed", "event", "list", "--oldest", "--before", token[1], code=2).err.startswith(
        "error: --before, --after and --oldest exclude each other: leave all but one out"
    )
    first = edge("fed", "event", "list", "--limit", "2", "--oldest", "-o", "name")
    assert first.lines == ["e0", "e1"]
    token = re.search(r"--after (\S+) ", first.err)
    assert token is not None
    assert edge("fed", "event", "list", "--after", token[1], "-o", "name").lines == ["e2", "e3", "e4", "e5"]
    for arguments, expected in (
        (["--type", "a"], "e1 e3 e5"),
        (["--type", "a", "--type", "b", "--newest", "--limit", "2"], "e5 e4"),
        (["--subject", "10.3"], "e3"),
        (["--id", "e4"], "e4"),
        (["--source-node", "elsewhere"], ""),
        (["--since", "1h", "--until", "0s"], "e0 e1 e2 e3 e4 e5"),
        (["--until", "1h"], ""),
    ):
        assert edge("fed", "event", "list", *arguments, "-o", "name").lines == expected.split(), arguments
    gap = edge("fed", "event", "list", "--after", "0011223344556677:3", "-o", "name")
    assert gap.err == "gap: group edge: the token is of another epoch of this log, or beyond its end\n"
    for option in ("--after", "--before"):
        told = edge("fed", "event", "list", option, "x", code=1).err
        assert told.startswith("error: 'x' is not a token of this list (")


def test_all_groups_are_listed_where_none_is_named(edge: Control) -> None:
    edge("apply", "-f", edge.file(EDGE.split("---")[0].replace("edge", "other"), "other.yaml"))
    for group in ("other", "edge"):
        edge("fed", "event", "emit", "--type", "t", "--id", "same", "--group", group)
    assert [event["group"] for event in edge("fed", "event", "list", "-o", "json").json] == ["edge", "other"]
    assert [line.split()[1] for line in edge("fed", "event", "list", "--no-headers").lines] == ["edge", "other"]


def test_wide_rows_show_the_payload_and_nothing_that_steers_the_terminal(edge: Control) -> None:
    edge("fed", "event", "emit", "--type", "t", "--subject", "a\x1b[2J\nb", "--payload", "k=v\u202e")
    told = edge("fed", "event", "list", "-o", "wide")
    assert told.lines[0].split() == [
        *HEADER,
        "RECORDED",
        "SEQ",
        "VIA",
        "RETURNED",
        "HISTORY",
        "MARK",
        "DEDUPE_KEY",
        "PAYLOAD",
    ]
    assert "a\\x1b[2J\\nb" in told.lines[1]
    assert told.lines[1].endswith("k=v\\u202e")
    assert "\x1b" not in told.out


def test_deliveries_show_each_event_at_each_peer(edge: Control) -> None:
    edge("fed", "event", "emit", "--type", "t", "--id", "e1")
    table = edge("federation", "event", "deliveries", "--group", "edge").lines
    assert table[0].split() == ["EVENT_ID", "PEER", "STATUS", "ATTEMPTS", "LAST_ATTEMPT", "LAST_ERROR", "DELIVERED"]
    assert table[1].split() == ["e1", "cloud", "pending", "0", "-", "-", "-"]
    (row,) = edge("fed", "event", "deliveries", "-o", "json").json
    assert (row["eventId"], row["deliveredAt"], row["eventExpiresAt"]) == ("e1", None, "0001-01-01T00:00:00Z")
    assert edge("fed", "event", "deliveries", "-o", "name").lines == ["e1/cloud"]
    for arguments, count in (
        (["--status", "pending"], 1),
        (["--status", "delivered", "--status", "failed"], 0),
        (["--peer", "cloud", "--event-id", "e1", "--type", "t"], 1),
        (["--event-id", "e2"], 0),
    ):
        assert len(edge("fed", "event", "deliveries", *arguments, "-o", "json").json) == count, arguments
    assert edge("fed", "event", "deliveries", "--peer", "clod", code=3).err.startswith(
        "error: group edge has no peer clod"
    )
    bad = edge("fed", "event", "deliveries", "--status", "lost", code=2)
    assert bad.err.startswith("error: invalid value for '--status': 'lost' is not one of delivered, pending")


def test_deliveries_are_those_of_the_newest_events(edge: Control) -> None:
    cloudy = EDGE.split("---")[1]
    edge("apply", "-f", edge.file(cloudy.replace("to-cloud", "to-moon").replace("cloud", "moon"), "moon.yaml"))
    edge("fed", "event", "emit", "--stdin", stdin=lines_of(*({"type": "t", "id": f"e{n}"} for n in range(4))))
    every = [f"e{n}/{peer}" for n in range(4) for peer in ("cloud", "moon")]
    assert edge("fed", "event", "deliveries", "-o", "name").lines == every
    newest = edge("fed", "event", "deliveries", "--limit", "4", "-o", "name")
    assert newest.lines == every[4:]
    token = re.search(r"--before (\S+) ", newest.err)
    assert token is not None
    assert edge("fed", "event", "deliveries", "--before", token[1], "-o", "name").lines == every[:4]
    oldest = edge("fed", "event", "deliveries", "--limit", "4", "--oldest", "-o", "name")
    assert oldest.lines == every[:4]
    token = re.search(r"--after (\S+) ", oldest.err)
    assert token is not None
    assert edge("fed", "event", "deliveries", "--after", token[1], "-o", "name").lines == every[4:]
    assert edge("fed", "event", "deliveries", "--limit", "0", "-o", "name").lines == every


def test_the_states_of_the_command_are_those_of_the_books() -> None:
    assert [str(state) for state in Status] == [str(state) for state in DeliveryState]


def test_prune_says_what_it_removed(edge: Control) -> None:
    edge("fed", "event", "emit", "--stdin", stdin=lines_of(*({"type": "t"} for _ in range(20))))
    unbounded = edge("fed", "event", "prune", "--group", "edge")
    assert unbounded.lines == ["removed 0 records of group edge"]
    assert "keeps everything" in unbounded.err
    bounded = EDGE.replace("nodeName: onprem", "nodeName: onprem\n  retention: {maxEvents: 5, undelivered: drop}")
    waits = "over its limits also if a peer has not received them; at most this many wait: 20 for cloud"
    assert f"so retention would remove events {waits}" in edge("apply", "-f", edge.file(bounded), "--dry-run").err
    assert f"so retention removes events {waits}" in edge("apply", "-f", edge.file(bounded)).err
    dropped = edge("fed", "event", "prune")
    assert dropped.lines == ["removed 15 records of group edge"]
    assert "peers that had not received removed events do not get them any more: 15 events for cloud" in dropped.err
    assert edge("fed", "event", "prune", "-o", "json").json[0]["removed"] == 0
    assert "no event of group edge is over the limits" in edge("fed", "event", "prune").err
    edge("apply", "-f", edge.file(bounded.replace("maxEvents: 5, undelivered: drop", "maxEvents: 1")))
    kept = edge("fed", "event", "prune")
    assert kept.lines == ["removed 0 records of group edge"]
    assert "events over the limits are kept: up to 4 for peers" in kept.err
    assert "routerctl federation links --group edge" in kept.err
    assert len(edge("fed", "event", "list", "-o", "json").json) == 5


def test_an_id_that_nothing_answers_is_said(edge: Control) -> None:
    told = edge("fed", "event", "list", "--id", "none")
    assert told.err == "note: no event none matches; --include-expired shows expired events\n"
    told = edge("fed", "event", "list", "--id", "none", "--include-expired", "-o", "json")
    assert (told.json, told.err) == ([], "note: no event none matches\n")


def test_deliveries_of_an_event_that_is_not_there_are_none_and_said(edge: Control) -> None:
    told = edge("fed", "event", "deliveries", "--event-id", "nope")
    assert len(told.lines) == 1
    assert told.err.startswith("note: no delivery of event nope matches; ")
    assert told.err.endswith("and why: routerctl federation event describe nope\n")
