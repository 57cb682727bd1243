"""`routerctl get --watch`: the present resources, each change, and notes of deletions, until Ctrl-C."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from tests.integration.cli.conftest import EDGE, Control
from tests.integration.cli.federation.test_watching import Watch


def test_get_shows_what_is_there_what_changes_and_what_is_deleted(control: Control, tmp_path: Path) -> None:
    control.edge()
    with closing(Watch(tmp_path, "get", "eg,ep", "--watch", "-o", "json")) as watch:
        assert [json.loads(watch.line())["metadata"]["name"] for _ in range(2)] == ["edge", "to-cloud"]
        control("apply", "-f", control.file(EDGE.replace("127.0.0.1:1", "127.0.0.1:2")))
        changed = json.loads(watch.line())
        assert (changed["spec"]["endpoint"], changed["metadata"]["generation"]) == ("http://127.0.0.1:2", 2)
        control("delete", "ep", "to-cloud")
        control("apply", "-f", control.file(EDGE.replace("onprem", "other").split("---")[0], "last.yaml"))
        assert json.loads(watch.line())["spec"]["nodeName"] == "other"
        code, err = watch.interrupt()
        assert (code, err) == (0, "deleted: eventpeer/to-cloud\n")


def test_each_kind_has_a_header_once_and_a_missing_name_is_reported(control: Control, tmp_path: Path) -> None:
    control.edge()
    with closing(Watch(tmp_path, "get", "all", "-w")) as watch:
        lines = [watch.line() for _ in range(4)]
        assert [line.split()[:2] for line in lines[::2]] == [["NAME", "NODE"], ["NAME", "GROUP"]]
        control("apply", "-f", control.file(EDGE.replace("127.0.0.1:1", "127.0.0.1:2")))
        assert watch.line().split()[:2] == ["eventpeer/to-cloud", "edge"]
    assert "EventPeer/none does not exist" in control("get", "ep/none", "-w", code=3).err
