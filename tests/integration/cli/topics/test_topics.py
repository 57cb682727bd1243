"""routerctl topic: its messages and tables, and each command on a database and over the API."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import Control, everywhere
from tests.integration.cli.topics.conftest import beside_a_file_too


def rows(out: str) -> list[list[str]]:
    """The cells of a table, without its headers."""
    return [line.split() for line in out.splitlines()[1:]]


@everywhere
def test_a_topic_from_its_beginning_to_its_end(routerctl: Control) -> None:
    assert routerctl("topic", "put", "jobs", "--set", "ttl_ms=10m", "--set", "type=queue").out == "topic/jobs created\n"
    assert routerctl("topic", "put", "jobs", "--set", "type=queue").out == "topic/jobs configured\n"
    assert routerctl("topic", "set", "jobs", "cap_records=5", "lease_ms=1500ms").out == "topic/jobs configured\n"
    state = routerctl("topic", "get", "jobs", "-o", "json").json
    assert (state["config"]["ttl_ms"], state["config"]["cap_records"], state["config"]["lease_ms"]) == (0, 5, 1500)
    assert routerctl("topic", "set", "jobs", "lease_ms=null", "-o", "json").json["config"]["lease_ms"] == 30_000
    routerctl("topic", "put", "other")
    assert routerctl("topic", "list", "-o", "name").lines == ["jobs", "other"]
    assert rows(routerctl("topic", "list", "--prefix", "o").out) == [["other", "0", "1", "0", "0", "no", "api"]]
    assert routerctl("topic", "delete", "jobs").out == "topic/jobs deleted\n"
    assert routerctl("topic", "list", "-o", "json").json[0]["topic"] == "other"


def test_a_configuration_comes_from_a_file(routerctl: Control) -> None:
    path = routerctl.file("ttl_ms: 60000\ndiscard: reject\n", "topic.yaml")
    config = routerctl("topic", "put", "jobs", "-f", path, "--set", "cap_records=9", "-o", "json").json["config"]
    assert (config["ttl_ms"], config["discard"], config["cap_records"], config["durability"]) == (
        60_000,
        "reject",
        9,
        "disk",
    )
    again = routerctl("topic", "put", "jobs", "-f", "-", "-o", "json", stdin=json.dumps(config)).json
    assert (again["created"], again["config"]) == (False, config)


@beside_a_file_too
def test_what_is_written_is_read(routerctl: Control) -> None:
    told = routerctl("topic", "write", "jobs", '{"n": 1}', '"text"', "--tag", "t:1", "--node", "me", "--meta", "[7]")
    assert told.out == "topic/jobs: 2 records written at 1 to 2\n"
    assert routerctl("topic", "write", "jobs", "null").out == "topic/jobs: 1 record written at 3\n"
    first, second, third = rows(routerctl("topic", "read", "jobs", "-o", "wide").out)
    assert (first[0], *first[2:]) == ("1", "me", "t:1", '{"n":1}', "[7]")
    assert (second[0], *second[2:]) == ("2", "me", "t:1", '"text"', "[7]")
    assert (third[0], *third[2:]) == ("3", "-", "-", "null", "-")
    lines = [json.loads(line) for line in routerctl("topic", "read", "jobs", "-o", "json").lines]
    assert lines[0] == {**lines[0], "$seq": 1, "$node": "me", "$tag": "t:1", "data": {"n": 1}, "meta": [7]}
    assert "$node" not in lines[2]


def test_records_are_read_from_where_one_likes(routerctl: Control) -> None:
    routerctl("topic", "write", "jobs", *map(str, range(1, 11)))
    routerctl("topic", "write", "jobs", "11", "--node", "me")

    def seqs(*options: str) -> list[int]:
        return list(map(int, routerctl("topic", "read", "jobs", "-o", "name", *options).lines))

    assert seqs() == list(range(1, 12))
    assert seqs("--after", "9") == [10, 11]
    assert seqs("--last", "2", "--exclude-node", "me") == [10]
    assert seqs("--limit", "3") == [1, 2, 3]
    assert seqs("--after", "8", "--limit", "1") == [9]
    assert seqs("--last", "0") == []


def test_a_dash_reads_a_record_a_line(routerctl: Control) -> None:
    told = routerctl("topic", "write", "jobs", "-", stdin='{"n":1}\n\n  2\n"three"')
    assert told.out == "topic/jobs: 3 records written at 1 to 3\n"
    assert routerctl("topic", "write", "jobs", "-", stdin="\n").out == "topic/jobs: nothing to write\n"
    lines = "".join(f"{n}\n" for n in range(2500))
    assert routerctl("topic", "write", "many", "-", "-o", "name", stdin=lines).lines == ["1000", "2000", "2500"]


def test_what_one_topic_gives_another_takes(routerctl: Control) -> None:
    routerctl("topic", "write", "a", '{"n": 1}', "--tag", "t", "--node", "me", "--meta", '{"m": 1}')
    routerctl("topic", "write", "a", "2.50")
    copied = routerctl("topic", "read", "a", "-o", "json").out
    routerctl("topic", "write", "b", "-", "--records", stdin=copied)
    there = [json.loads(line) for line in routerctl("topic", "read", "b", "-o", "json").lines]
    here = [json.loads(line) for line in copied.splitlines()]
    for record in (*here, *there):
        del record["$ts"]
    assert there == here


NO_RECORDS = [
    ("{", "line 3 of the standard input is not valid JSON: "),
    ("[1]", "line 3 of the standard input is not an object"),
    ('{"tag": "t"}', "line 3 of the standard input has no member data"),
    ('{"data": 1, "tag": 2}', "line 3 of the standard input: tag must be text"),
    ('{"data": 1, "dtaa": 2}', "line 3 of the standard input has a member 'dtaa', which records do not have"),
]


def test_a_line_that_is_no_record_is_named(control: Control, sqlite_url: str) -> None:
    for line, told in NO_RECORDS:
        text = f'{{"data": 1}}\n\n{line}\n'
        found = control("topic", "write", "jobs", "-", "--records", "--database", sqlite_url, stdin=text, code=1)
        assert found.err.startswith(f"error: {told}"), line
        assert found.err.count("\n") == 1, line
        assert control("topic", "list", "-o", "name", "--database", sqlite_url, code=None).out == "", line


def test_what_is_missing_is_said_beside_the_table(routerctl: Control) -> None:
    routerctl("topic", "put", "jobs", "--set", "cap_records=2")
    for n in ("1", "2", "3", "4"):
        routerctl("topic", "write", "jobs", n)
    told = routerctl("topic", "read", "jobs", "-o", "name")
    assert told.lines == ["3", "4"]
    assert told.err == ("gap: topic jobs: records 1 to 2 are lost (evicted by the caps of the topic)\n")


@beside_a_file_too
def test_a_purge_says_what_it_took(routerctl: Control) -> None:
    for n in range(4):
        routerctl("topic", "write", "jobs", str(n), "--tag", f"t:{n}")
    assert routerctl("topic", "purge", "jobs", "--match", "t:3").out == "topic/jobs: 1 record deleted, 3 left\n"
    assert routerctl("topic", "purge", "jobs", "--match", "t:*", "--before", "3", "-o", "json").json["deleted"] == 2
    assert routerctl("topic", "read", "jobs").err == ""
    assert routerctl("topic", "purge", "jobs", code=2).err.startswith("error: select records with --before SEQ, ")


@beside_a_file_too
def test_describe_tells_all_of_it(routerctl: Control) -> None:
    routerctl("topic", "put", "jobs", "--set", "type=queue", "--set", "max_deliveries=3")
    routerctl("topic", "write", "jobs", "1")
    routerctl("router", "put", "jobs->audit")
    routerctl("router", "put", "in", "--source", "incoming", "--dest", "jobs")
    lines = [line.strip() for line in routerctl("topic", "describe", "jobs").lines]
    for line in (
        "Name:         jobs",
        "Type:         queue",
        "Records:      1 (1 byte)",
        "Seqs:         1 to 1",
        "Queue:        ready 1, in flight 0, dead lettered 0",
        "max_deliveries: 3",
        "dead_letter: -",
        "auto_create: true",
        "jobs->audit: jobs -> audit",
        "in: incoming -> jobs",
    ):
        assert line in lines
    told = routerctl("topic", "describe", "jobs", "-o", "json").json
    assert [router["router"] for router in told["routersFrom"] + told["routersTo"]] == ["jobs->audit", "in"]
    gone = routerctl("topic", "delete", "jobs")
    assert gone.lines == ["topic/jobs deleted", "router/in deleted", "router/jobs->audit deleted"]


MISTAKES = [
    (("get", "ghost"), 3, "error: topic 'ghost' does not exist (`routerctl topic list` shows"),
    (("describe", "ghost"), 3, "error: topic 'ghost' does not exist"),
    (("read", "ghost"), 3, "error: topic 'ghost' does not exist (`routerctl topic list` shows"),
    (("read", "ghost", "--last", "1"), 3, "error: topic 'ghost' does not exist"),
    (("purge", "ghost", "--before", "1"), 3, "error: topic 'ghost' does not exist (`routerctl topic list` shows"),
    (("set", "ghost", "ttl_ms=1"), 3, "error: topic 'ghost' does not exist (`routerctl topic list` shows"),
    (("delete", "ghost"), 3, "error: topic ghost does not exist ("),
    (("write", "ghost", "1", "--no-create"), 3, "error: topic 'ghost' does not exist"),
    (("put", "_x"), 1, "error: "),
    (("put", "x", "--set", "ttl_ms"), 1, "error: 'ttl_ms' is not FIELD=VALUE (write both"),
    (("put", "x", "--set", "capp_records=1"), 1, "error: a topic has no field 'capp_records' (did you mean"),
    (("put", "x", "--set", "cap_records=many"), 1, "error: the configuration is not valid: Expected `int`, got"),
    (("put", "x", "--set", "cap_records=-1"), 1, "error: "),
    (("put", "x", "--set", "ttl_ms=10 apples"), 1, "error: ttl_ms: '10 apples' is not a duration; write"),
    (("put", "x", "-f", "missing.yaml"), 1, "error: missing.yaml: No such file or directory"),
    (("write", "x", "{"), 1, "error: value 1 is not valid JSON"),
    (("write", "x", "hello"), 1, "error: value 1 is not valid JSON"),
    (("write", "x", "1", "-"), 2, "error: - must be the only value"),
    (("write", "x", "-", "--idempotency-key", "k"), 2, "error: - must be the only value"),
    (("read", "x", "--after", "-1"), 2, "error: "),
    (("get", "\udcff"), 1, "error: '\\udcff' is not text: it contains bytes that are not UTF-8"),
    (("list", "--prefix", "\udcff"), 1, "error: '\\udcff' is not text"),
    (("write", "x", "1", "--tag", "\udcff"), 1, "error: '\\udcff' is not text"),
    (("write", "x", '"\udcff"'), 1, "error: value 1 is not valid UTF-8"),
    (("set", "there", "dead_letter=\udcff"), 1, "error: '\\udcff' is not text"),
    (("read", "there", "--exclude-node", "\udcff"), 1, "error: '\\udcff' is not text"),
]


def test_a_mistake_is_one_line(control: Control, sqlite_url: str) -> None:
    control("topic", "put", "there", "--database", sqlite_url)
    for arguments, code, told in MISTAKES:
        found = control("topic", *arguments, "--database", sqlite_url, code=code)
        assert found.err.startswith(told), arguments
        assert (found.out, found.err.count("\n")) == ("", 1), arguments
    assert control("topic", "list", "-o", "name", "--database", sqlite_url).lines == ["there"]


def test_a_write_that_is_said_twice_is_written_once(routerctl: Control) -> None:
    for expected in ("1 record written at 1", "1 record existed already at 1"):
        told = routerctl("topic", "write", "jobs", "1", "--idempotency-key", "order-7")
        assert told.out == f"topic/jobs: {expected}\n"


def test_a_full_topic_says_how_much_was_written_before(routerctl: Control) -> None:
    routerctl("topic", "put", "jobs", "--set", "cap_records=1500", "--set", "discard=reject")
    lines = "".join(f"{n}\n" for n in range(2500))
    told = routerctl("topic", "write", "jobs", "-", stdin=lines, code=1)
    note, error = told.err.splitlines()
    assert note == "note: 1,000 records confirmed as written, the last at seq 1000"
    assert error.startswith("error: ")


def test_nothing_is_made_where_nothing_is_to_be_made(control: Control) -> None:
    where = ("--data-dir", "node")
    for arguments in (("list",), ("read", "jobs"), ("write", "jobs", "1", "--no-create")):
        assert "eventd.db does not exist" in control("topic", *arguments, *where, code=3).err
    control("topic", "write", "jobs", "1", *where)
    assert control("topic", "read", "jobs", "-o", "name", *where).lines == ["1"]


def test_the_events_of_a_group_can_be_read_as_a_topic(routerctl: Control) -> None:
    routerctl.edge()
    routerctl("fed", "event", "emit", "--type", "client.seen", "--id", "e1", "--payload", "ip=10.0.0.1")
    (line,) = routerctl("topic", "read", "group:edge", "-o", "json").lines
    record = json.loads(line)
    assert (record["$seq"], record["$node"], record["$tag"]) == (1, "onprem", "client.seen")
    assert record["data"] == {"ip": "10.0.0.1"}
    assert routerctl("topic", "write", "group:edge", "1", code=1).err.startswith("error: ")


def test_the_ceilings_of_the_node_hold_for_a_command_beside_it(
    control: Control, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTD_MAX_TOPICS", "1")
    control("topic", "put", "a", "--database", sqlite_url)
    control("topic", "put", "a", "--database", sqlite_url)
    assert control("topic", "put", "b", "--database", sqlite_url, code=1).err.startswith("error: ")
    assert control("topic", "list", "-o", "name", "--database", sqlite_url).lines == ["a"]


def test_the_jobs_of_a_queue_are_counted(routerctl: Control) -> None:
    routerctl("topic", "put", "jobs", "--set", "type=queue")
    routerctl("topic", "write", "jobs", "1", "2")
    headers, line = (row.split() for row in routerctl("topic", "get", "jobs", "-o", "wide").lines)
    shown = dict(zip(headers, line, strict=True))
    assert (shown["READY"], shown["IN_FLIGHT"], shown["DEAD_LETTERED"]) == ("2", "0", "0")


def test_reading_up_to_a_limit_says_that_there_is_more(routerctl: Control) -> None:
    routerctl("topic", "write", "jobs", "1", "2", "3")
    told = routerctl("topic", "read", "jobs", "--limit", "2")
    assert len(rows(told.out)) == 2
    assert told.err == "note: topic jobs has records up to 3; continue with --after 2\n"
    assert routerctl("topic", "read", "jobs", "--limit", "3").err == ""
