"""The commands apply, diff, get, describe, delete."""

from __future__ import annotations

import json
import re

from tests.integration.cli.conftest import EDGE, Control, everywhere


@everywhere
def test_apply_says_what_became_of_each_resource(routerctl: Control) -> None:
    path = routerctl.file(EDGE)
    assert routerctl("apply", "-f", path, "--dry-run").lines == [
        "eventgroup/edge created (dry run)",
        "eventpeer/to-cloud created (dry run)",
    ]
    assert routerctl("get", "all").err == "no resources are declared\n"
    assert routerctl("apply", "-f", path).lines == ["eventgroup/edge created", "eventpeer/to-cloud created"]
    assert routerctl("apply", "-f", path).lines == ["eventgroup/edge unchanged", "eventpeer/to-cloud unchanged"]
    routerctl.file(EDGE.replace("127.0.0.1:1", "127.0.0.1:2"))
    assert routerctl("apply", "-f", path).lines[1] == "eventpeer/to-cloud configured"
    changes = routerctl("apply", "-f", path, "-o", "json").json
    assert changes[0] == {
        "action": "unchanged",
        "apiVersion": "federation.routerd.net/v1alpha1",
        "kind": "EventGroup",
        "name": "edge",
    }


def test_apply_reads_the_standard_input_and_directories(routerctl: Control) -> None:
    assert routerctl("apply", "-f", "-", stdin=EDGE).lines[0] == "eventgroup/edge created"
    (routerctl.folder / "all").mkdir()
    routerctl.file(EDGE, "all/edge.yaml")
    assert routerctl("apply", "-f", str(routerctl.folder / "all")).lines[0] == "eventgroup/edge unchanged"


def test_every_problem_of_every_source_is_said_at_once_and_nothing_is_written(routerctl: Control) -> None:
    bad = routerctl.file("\nkind: EventGroup\nmetadata: {name: x y}\nspec: {nodeName: n, extra: 1}\n", "bad.yaml")
    (routerctl.folder / "raw.yaml").write_bytes(b"a: b\n\xff\xfe\n")
    told = routerctl(
        "apply",
        "-f",
        routerctl.file(EDGE),
        "-f",
        bad,
        "-f",
        "missing.yaml",
        "-f",
        str(routerctl.folder / "raw.yaml"),
        code=1,
    )
    lines = told.err.splitlines()
    assert lines[0] == "error: 5 problems in the declared resources, nothing was changed:"
    assert told.out == ""
    assert any("bad.yaml:2: EventGroup/x y apiVersion: is required" in line for line in lines)
    assert any("bad.yaml:3: EventGroup/x y metadata.name: must be" in line for line in lines)
    assert any("bad.yaml:4: EventGroup/x y spec.extra:" in line for line in lines)
    assert any("missing.yaml: cannot be read: no such file or directory" in line for line in lines)
    assert any("raw.yaml:2: is not UTF-8 text" in line for line in lines)
    assert routerctl("get", "all", "-o", "json").json == []


def test_prune_deletes_what_the_files_do_not_hold(routerctl: Control) -> None:
    routerctl.edge()
    group, _ = EDGE.split("---")
    path = routerctl.file(group, "group.yaml")
    assert routerctl("diff", "-f", path).out == ""
    assert "-kind: EventPeer" in routerctl("diff", "-f", path, "--prune").lines
    assert routerctl("apply", "-f", path, "--prune").lines == [
        "eventgroup/edge unchanged",
        "eventpeer/to-cloud deleted",
    ]
    empty = routerctl.file("", "empty.yaml")
    assert "would delete all 1" in routerctl("apply", "-f", empty, "--prune", code=1).err
    assert routerctl("apply", "-f", empty, "--prune", "--force").lines == ["eventgroup/edge deleted"]


def test_diff_is_a_diff_and_ends_with_4_only_when_asked(routerctl: Control) -> None:
    routerctl.edge()
    same, other = routerctl.file(EDGE), routerctl.file(EDGE.replace("onprem", "office"), "other.yaml")
    assert routerctl("diff", "-f", same, "--exit-code").out == ""
    found = routerctl("diff", "-f", other)
    assert found.lines[:2] == ["--- stored/EventGroup/edge", "+++ applied/EventGroup/edge"]
    assert "-  nodeName: onprem" in found.lines
    assert "+  nodeName: office" in found.lines
    assert routerctl("diff", "-f", other, "--exit-code", code=4).err == ""
    assert [change["name"] for change in routerctl("diff", "-f", other, "-o", "json").json] == ["edge"]
    assert routerctl("diff", "-f", other, "-o", "name").lines == ["eventgroup/edge"]


def test_get_shows_tables_names_and_what_can_be_applied_again(routerctl: Control) -> None:
    routerctl.edge()
    table = routerctl("get", "all").lines
    assert table[0].split() == ["NAME", "NODE", "LISTEN", "PROTOCOLS", "CREATED"]
    assert table[1].split()[:4] == ["eventgroup/edge", "onprem", "-", "v1,v2"]
    assert table[2] == ""
    assert table[4].split()[:5] == ["eventpeer/to-cloud", "edge", "cloud", "http://127.0.0.1:1", "auto"]
    for kind in ("eg", "group", "EventGroup", "eventgroups"):
        assert routerctl("get", kind, "-o", "name").lines == ["eventgroup/edge"]
    assert routerctl("get", "ep", "--no-headers", "-o", "wide").lines[0].split()[-3:] == ["all", "all", "1"]
    for format in ("yaml", "json"):
        again = routerctl.file(routerctl("get", "all", "-o", format).out, f"again.{format}")
        assert routerctl("apply", "-f", again).lines == ["eventgroup/edge unchanged", "eventpeer/to-cloud unchanged"]
    assert routerctl("get", "ep", "to-cloud", "-o", "json").json["spec"]["nodeName"] == "cloud"
    assert routerctl("get", "eg", "edge", "--no-headers").lines[0].startswith("edge  onprem")


WRONG = [
    (["get", "ep", "cluod"], 3, "error: EventPeer/cluod does not exist (declared: to-cloud)"),
    (["get", "gruop"], 3, "error: unknown kind gruop"),
    (["get", "eg/edge,b"], 3, "error: unknown kind eg/edge (separate kind and name with a blank: eg edge)"),
    (["describe", "eg", "egde"], 3, "error: EventGroup/egde does not exist"),
    (["delete", "ep", "nobody"], 3, "error: EventPeer/nobody does not exist"),
    (["delete", "eg", "edge"], 1, "error: EventGroup/edge still has peers: EventPeer/to-cloud"),
    (["delete"], 2, "error: name what to delete: KIND NAME, or -f FILE (see routerctl delete --help)"),
    (["delete", "ep"], 2, "error: name what to delete"),
    (["get", "all", "edge"], 2, "error: all takes no name"),
    (["apply"], 2, "error: missing option '--filename' / '-f' (see routerctl apply --help)"),
    (["aply"], 2, "error: no such command 'aply': did you mean apply? (see routerctl --help)"),
    (["get", "eg", "--outptu", "json"], 2, "error: no such option: --outptu"),
    (["get", "eg", "-o", "xml"], 2, "error: invalid value for '-o' / '--output'"),
]


def test_errors_are_one_line_with_the_right_code(routerctl: Control) -> None:
    routerctl.edge()
    for arguments, code, message in WRONG:
        told = routerctl(*arguments, code=code)
        assert told.err.startswith(message), arguments
        assert told.err.count("\n") == 1, arguments
        assert told.out == "", arguments
    assert routerctl("get", "all", "-o", "name").lines == ["eventgroup/edge", "eventpeer/to-cloud"]


def test_delete_by_name_and_by_file(routerctl: Control) -> None:
    routerctl.edge()
    assert routerctl("delete", "peer", "to-cloud", "--dry-run").lines == ["eventpeer/to-cloud deleted (dry run)"]
    assert routerctl("delete", "peer", "to-cloud").lines == ["eventpeer/to-cloud deleted"]
    path = routerctl.file(EDGE)
    assert "EventPeer/to-cloud does not exist" in routerctl("delete", "-f", path, code=3).err
    assert routerctl("delete", "-f", path, "--ignore-not-found").lines == ["eventgroup/edge deleted"]
    nameless = routerctl.file("kind: EventPeer\n", "nameless.yaml")
    assert "lacks apiVersion, kind or metadata.name" in routerctl("delete", "-f", nameless, code=1).err


def test_deleting_a_group_says_how_many_events_go_with_it(routerctl: Control) -> None:
    path = routerctl.file(EDGE)
    routerctl("apply", "-f", path)
    for event_id in ("e1", "e2"):
        routerctl("federation", "event", "emit", "--type", "t", "--id", event_id)
    would = routerctl("delete", "-f", path, "--dry-run")
    assert would.err == "note: 2 stored events of group edge would be deleted with it\n"
    assert routerctl("diff", "-f", routerctl.file("", "none.yaml"), "--prune").err == would.err
    assert routerctl("delete", "-f", path).err == "note: 2 stored events of group edge were deleted with it\n"
    routerctl("apply", "-f", path)
    assert routerctl("federation", "event", "list", "-o", "json").json == []
    assert routerctl("delete", "-f", path).err == ""


def test_describe_tells_the_spec_the_link_and_the_lag(routerctl: Control) -> None:
    routerctl.edge()
    routerctl("federation", "event", "emit", "--type", "t")
    peer = routerctl("describe", "ep", "to-cloud").out
    assert "Name:        to-cloud" in peer
    assert "    maxBackoff: 30s\n" in peer
    assert re.search("^  State: +running$", peer, re.MULTILINE)
    assert re.search("^  Waiting: +1 event, the oldest for ", peer, re.MULTILINE)
    group = routerctl("describe", "eg", "edge").out
    assert re.search("^  Events: +1$", group, re.MULTILINE)
    assert "Links:\nGROUP  PEER" in group
    described = routerctl("describe", "ep", "to-cloud", "-o", "json").json
    assert described["effective"]["protocol"] == "auto"
    assert described["status"]["link"]["lagEvents"] == 1
    assert described["status"]["recentDeadLetters"] == []


def test_the_table_of_a_hostile_annotation_cannot_steer_the_terminal(routerctl: Control) -> None:
    text = EDGE.replace("metadata: {name: edge}", 'metadata: {name: edge, annotations: {note: "\\e[31m\\u202e"}}')
    routerctl("apply", "-f", routerctl.file(text))
    shown = routerctl("describe", "eg", "edge").out
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_apply_makes_the_database_and_other_commands_say_how(control: Control) -> None:
    missing = control("get", "all", code=3)
    assert missing.err.startswith(
        f"error: the database {control.folder}/eventd-data/eventd.db does not exist (create it with `routerctl apply"
    )
    assert control("apply", "-f", control.file(EDGE), "--dry-run").lines[0] == "eventgroup/edge created (dry run)"
    assert "+kind: EventGroup" in control("diff", "-f", control.file(EDGE)).lines
    assert not (control.folder / "eventd-data").exists()
    assert control("apply", "-f", control.file(EDGE)).lines[0] == "eventgroup/edge created"
    assert (control.folder / "eventd-data").stat().st_mode & 0o777 == 0o700
    assert control("get", "eg", "-o", "name", "--data-dir", "eventd-data").lines == ["eventgroup/edge"]
    assert control("get", "eg", "-o", "name", "--state-file", "eventd-data/eventd.db").lines == ["eventgroup/edge"]
    url = f"sqlite:///{control.folder}/eventd-data/eventd.db"
    assert control("get", "eg", "-o", "name", "--database", url).lines == ["eventgroup/edge"]
    assert "leave one out" in control("get", "eg", "--database", url, "--state-file", "x", code=2).err


def test_a_file_that_is_no_database_is_told_as_such(control: Control) -> None:
    path = control.file("this is no database, and long enough to have a header of its own" * 10, "x.db")
    told = control("get", "all", "--state-file", path, code=1)
    assert "file is not a database" in told.err
    assert "Traceback" not in told.err


def test_yaml_and_json_output_are_empty_lists_when_there_is_nothing(routerctl: Control) -> None:
    assert json.loads(routerctl("get", "eg", "-o", "json").out) == []
    assert routerctl("get", "eg", "-o", "yaml").out.strip() == "[]"


def test_nothing_has_a_blank_name(control: Control) -> None:
    for words in (("get", "", "x"), ("describe", "eg", ""), ("federation", "pause", "", "--group", "g")):
        assert ": must not be empty: " in control(*words, code=2).err, words


LABELLED = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: edge, labels: {site: north}}
spec: {nodeName: a, auth: {secretFile: /k}}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventPeer
metadata: {name: b, labels: {site: south, tier: core}}
spec: {groupRef: edge, nodeName: b, endpoint: "http://127.0.0.1:1"}
---
apiVersion: net.example/v1
kind: Route
metadata: {name: r, labels: {site: south}}
spec: {gateway: 10.0.0.1}
"""


def test_resources_are_selected_by_labels_of_all_kinds(control: Control) -> None:
    control("apply", "-f", "-", stdin=LABELLED)
    assert control("get", "all", "-l", "site=south", "-o", "name").lines == ["eventpeer/b", "route/r"]
    assert control("get", "all", "-l", "site=south,tier", "-o", "name").lines == ["eventpeer/b"]
    assert control("get", "ep,eg", "-o", "name").lines == ["eventpeer/b", "eventgroup/edge"]
    assert control("get", "all", "-l", "site=east").err == "no resource has the labels site=east\n"


def test_a_change_of_a_label_is_a_change_that_is_applied_and_shown(control: Control) -> None:
    control("apply", "-f", "-", stdin=LABELLED)
    changed = LABELLED.replace("tier: core", "tier: lab")
    assert "-    tier: core\n+    tier: lab\n" in control("diff", "-f", "-", stdin=changed).out
    assert "eventpeer/b configured" in control("apply", "-f", "-", stdin=changed).lines
    assert control("get", "ep/b", "-o", "jsonpath={.metadata.labels.tier}").out == "lab\n"
    again = control("get", "all", "-o", "yaml").out
    assert set(control("apply", "-f", "-", stdin=again).lines) == {
        "eventgroup/edge unchanged",
        "eventpeer/b unchanged",
        "route/r unchanged",
    }


def test_kind_and_name_may_be_one_word(control: Control) -> None:
    control("apply", "-f", "-", stdin=LABELLED)
    assert "Label tier:" in control("describe", "ep/b").out
    assert control("get", "ep/b", "c", code=2).err.startswith("error: ep/b has a name already: leave out c")
    assert control("delete", "ep/b").lines == ["eventpeer/b deleted"]
    assert control("get", "eg,ep", "b", code=2).err.startswith("error: eg,ep takes no name: write one kind")
    assert control("get", "all", "-l", "a b", code=1).err.startswith("error: cannot read the part 'a b' of the label")
