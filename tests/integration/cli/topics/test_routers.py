"""routerctl router and topology check."""

from __future__ import annotations

import json

from tests.integration.cli.conftest import Control, everywhere
from tests.integration.cli.topics.conftest import beside_a_file_too


@everywhere
def test_a_router_copies_what_is_written_from_then_on(routerctl: Control) -> None:
    routerctl("topic", "write", "a", "0")
    assert routerctl("router", "put", "a->b", "--filter", "public:*").out == "router/a->b created\n"
    assert routerctl("router", "put", "a->b", "--filter", "public:*").out == "router/a->b configured\n"
    routerctl("topic", "write", "a", "1", "--tag", "public:x")
    routerctl("topic", "write", "a", "2", "--tag", "secret:x")
    (line,) = routerctl("topic", "read", "b", "-o", "json").lines
    assert json.loads(line)["data"] == 1
    (row,) = routerctl("router", "get", "a->b").lines[1:]
    assert row.split()[:6] == ["a->b", "a", "b", "at_least_once", "no", "1"]
    assert "tag Glob public:*" in row
    shown = routerctl("router", "get", "a->b", "-o", "json").json
    assert (shown["filter"], shown["forwarded_total"], shown["preserve_node"]) == (["tag", "Glob", "public:*"], 1, True)
    assert "created" not in shown
    assert routerctl("router", "delete", "a->b").out == "router/a->b deleted\n"
    assert routerctl("router", "delete", "a->b", code=3).err.startswith("error: router a->b does not exist (")
    assert routerctl("router", "delete", "a->b", "--ignore-not-found").out == ""


@beside_a_file_too
def test_routers_are_listed_as_asked(routerctl: Control) -> None:
    for name in ("a->b", "a->c", "x->d"):
        routerctl("router", "put", name)
    routerctl("router", "put", "mirror", "--source", "b", "--dest", "e", "--exactly-once")
    assert routerctl("router", "list", "-o", "name").lines == ["a->b", "a->c", "mirror", "x->d"]
    assert routerctl("router", "list", "--source", "a", "-o", "name").lines == ["a->b", "a->c"]
    assert routerctl("router", "list", "--dest", "c", "-o", "name").lines == ["a->c"]
    assert routerctl("router", "list", "--prefix", "x", "-o", "name").lines == ["x->d"]
    assert routerctl("router", "list").lines[3].split() == ["mirror", "b", "e", "exactly_once", "no", "0", "api"]


MISTAKES = [
    (("get", "ghost"), 3, "error: router 'ghost' does not exist"),
    (
        ("put", "ghost"),
        1,
        "error: router ghost has no source or no destination (name it 'SOURCE->DEST', or give both",
    ),
    (("put", "x->x"), 1, "error: "),
    (("put", "b->a"), 1, "error: "),
    (("put", "c->b"), 1, "error: "),
    (("put", "a->b", "--dest", "z"), 1, "error: "),
    (("put", "x->y", "--no-create"), 3, "error: topic 'y' does not exist"),
    (("put", "x->y", "--map", "{"), 1, "error: --map is not valid JSON: "),
    (("put", "x->y", "--map", "[]"), 1, "error: --map must be an object"),
]


def test_a_mistake_is_one_line(control: Control, sqlite_url: str) -> None:
    control("router", "put", "a->b", "--database", sqlite_url)
    for arguments, code, told in MISTAKES:
        found = control("router", *arguments, "--database", sqlite_url, code=code)
        assert found.err.startswith(told), arguments
        assert (found.out, found.err.count("\n")) == ("", 1), arguments
    assert control("router", "list", "-o", "name", "--database", sqlite_url).lines == ["a->b"]


# --- topology -------------------------------------------------------------------------------------------------------


def problems(routerctl: Control, *arguments: str, stdin: str = "", code: int = 4) -> list[tuple[str, str]]:
    told = routerctl("topology", "check", "-o", "json", *arguments, stdin=stdin, code=code).json
    return [(found["problem"], found["at"]) for found in told["problems"]]


@beside_a_file_too
def test_what_is_in_order_is_drawn(routerctl: Control) -> None:
    told = routerctl("topology", "check")
    assert (told.out, told.err) == ("", "no routers\n")
    for name in ("a->b", "b->c", "a->d"):
        routerctl("router", "put", name)
    assert routerctl("topology", "check").out == "a\n├─ b  a->b\n│  └─ c  b->c\n└─ d  a->d\n"
    foretold = routerctl("topology", "check", "-o", "json").json["foretold"]
    assert {(row["topic"], row["dest"], row["copies"], row["duplicates"]) for row in foretold} == {
        ("a", "b", 1, 0),
        ("a", "c", 1, 0),
        ("a", "d", 1, 0),
        ("b", "c", 1, 0),
    }


def test_what_a_node_would_refuse_is_found_before_it_is_asked(routerctl: Control) -> None:
    for name in ("a->b", "b->c"):
        routerctl("router", "put", name)
    assert problems(routerctl, "--add", "c->a") == [("cycle", "c->a")]
    assert problems(routerctl, "--add", "x->c") == [("fan-in", "x->c")]
    assert problems(routerctl, "--add", "x->x") == [("cycle", "x->x")]
    assert problems(routerctl, "--add", "a->b=a->z") == [("re-pointed", "a->b")]
    assert problems(routerctl, "--add", "x->y", "--add", "y->x") == [("cycle", "y->x")]
    told = routerctl("topology", "check", "--add", "c->a", code=4)
    assert "cycle    c->a  c -> a -> b -> c: the new router would be refused" in told.lines
    assert told.err == (
        "error: 1 problem found"
        " (give each of these routers fan_in: they may then close cycles, as a topic accepts each record only once)\n"
    )
    assert routerctl("router", "list", "-o", "name").lines == ["a->b", "b->c"]


def test_it_says_of_each_router_what_the_node_says_when_it_is_put(routerctl: Control) -> None:
    for name in ("a->b", "b->c"):
        routerctl("router", "put", name)
    for name, source, dest in (("c->a", "c", "a"), ("x->c", "x", "c"), ("c->d", "c", "d"), ("a->b", "a", "z")):
        flag = f"{name}={source}->{dest}"
        foreseen = routerctl("topology", "check", "--add", flag, code=None).code
        happened = routerctl("router", "put", name, "--source", source, "--dest", dest, code=None).code
        assert (foreseen == 0) == (happened == 0), name


def test_a_mirror_that_multiplies_is_foretold_to_the_record(routerctl: Control) -> None:
    routerctl("router", "put", "a->b", "--allow-cycle")
    added = ("--add", "b->a,allow_cycle")
    assert problems(routerctl, *added) == [
        ("loop", "a => a"),
        ("duplicates", "a => b"),
        ("duplicates", "b => a"),
        ("loop", "b => b"),
    ]
    told = routerctl("topology", "check", "-o", "json", *added, code=4).json["foretold"]
    foretold = {row["dest"]: row["copies"] for row in told if row["topic"] == "a"}
    routerctl("router", "put", "b->a", "--allow-cycle")
    routerctl("topic", "write", "a", "1")
    for topic, own in (("b", 0), ("a", 1)):
        assert len(routerctl("topic", "read", topic, "-o", "name").lines) == foretold[topic] + own


def test_routers_that_keep_identities_may_meet_and_close_cycles(routerctl: Control) -> None:
    mesh = [f"{a}->{b},fan_in" for a in "abc" for b in "abc" if a != b]
    added = [word for router in mesh for word in ("--add", router)]
    assert problems(routerctl, *added, code=0) == []
    assert problems(routerctl, *added, "--add", "x->a") == [("fan-in", "x->a")]


def test_routers_come_from_files(routerctl: Control) -> None:
    routerctl("router", "put", "a->b")
    path = routerctl.file("- router: b->c\n- {source: c, dest: a, filter: 'x:*'}\n---\nrouter: c->d\n", "routers.yaml")
    assert problems(routerctl, "-f", path) == [("cycle", "c->a")]
    text = json.dumps({"router": "in", "source": "x", "dest": "b", "fan_in": True})
    assert problems(routerctl, "-f", "-", stdin=text) == [("fan-in", "in")]
    assert problems(routerctl, "-f", "-", "--remove", "a->b", stdin=text, code=0) == []


NOT_CHECKED = [
    (("--add", "a"), "", "error: router a has no source or no destination"),
    (("--add", "a->_b"), "", "error: "),
    (("--add", "a->\udcff"), "", "error: "),
    (("--add", "a->b,fanin"), "", "error: --add: 'fanin' is not one of allow_cycle, fan_in, exactly_once"),
    (("-f", "-"), "a: [", "error: <stdin>: line 2: is not valid YAML"),
    (("-f", "-"), "- 1", "error: -: each router is a mapping"),
    (("-f", "-"), "router: a->b\nfilter: [tag, Regex, x]", "error: no operator 'Regex'"),
    (("-f", "-"), "router: a->b\nfanin: true", "error: -: router a->b: a router has no field 'fanin'"),
    (("-f", "-"), "router: a->b\nguarantee: twice", "error: router a->b: Invalid enum value 'twice'"),
    (("-f", "nowhere.yaml"), "", "error: nowhere.yaml: No such file or directory"),
]


def test_what_cannot_be_checked_is_one_line(control: Control, sqlite_url: str) -> None:
    control("topic", "put", "there", "--database", sqlite_url)
    for arguments, text, told in NOT_CHECKED:
        found = control("topology", "check", *arguments, "--database", sqlite_url, stdin=text, code=1)
        assert found.err.startswith(told), arguments
        assert (found.out, found.err.count("\n")) == ("", 1), arguments
    told = control("topology", "check", "--remove", "x", "--database", sqlite_url, code=3).err
    assert told.startswith("error: router x does not exist")


def test_what_the_commands_show_of_routers_can_be_checked(routerctl: Control) -> None:
    routerctl("router", "put", "a->b", "--filter", "eu:*", "--allow-cycle")
    row = routerctl("router", "list", "-o", "json").json[0]
    assert (row["filter"], row["allow_cycle"]) == (["tag", "Glob", "eu:*"], True)
    headers, line = routerctl("router", "list", "-o", "wide").lines
    assert (headers.split()[-2:], line.endswith("tag Glob eu:*  yes")) == (["FILTER", "ALLOW_CYCLE"], True)
    for shown in (routerctl("router", "list", "-o", "json").out, routerctl("router", "get", "a->b", "-o", "yaml").out):
        drawn = routerctl("topology", "check", "-f", "-", "--remove", "a->b", stdin=shown).out
        assert drawn == "a\n└─ b  a->b [allow_cycle, tag Glob eu:*]\n"
