"""routerctl status: the node on one screen."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Control


@pytest.mark.parametrize("routerctl", ["sqlite", "api"], indirect=True)
def test_the_screen_has_groups_and_only_what_needs_attention(routerctl: Control) -> None:
    routerctl.edge()
    lines = routerctl("status").lines
    assert [line.split()[0] for line in lines[:3]] == ["NODE", "DOCTOR", "LINKS"]
    assert lines[2] == "LINKS   1 of 1 running  0 dead letters"
    assert "NEXT_ATTEMPT" not in " ".join(lines)
    routerctl("federation", "pause", "cloud")
    lines = routerctl("status").lines
    assert lines[2] == "LINKS   0 of 1 running  0 dead letters"
    assert [line for line in lines if line.startswith("edge   cloud  paused")]


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_the_parts_are_members_of_json(routerctl: Control) -> None:
    routerctl.edge()
    shown = routerctl("status", "-o", "json").json
    assert list(shown) == ["serving", "summary", "groups", "links", "checks"]
    assert [row["group"] for row in shown["groups"]] == ["edge"]
    assert [link["peer"] for link in shown["links"]] == ["cloud"]
    assert {check["status"] for check in shown["checks"]} <= {"warn", "fail"}


def test_without_groups_it_says_so_in_three_lines(control: Control, migrated_sqlite_url: str) -> None:
    shown = control("status", "--database", migrated_sqlite_url)
    assert shown.lines[0] == "NODE    no node serves this database now"
    assert shown.lines[2] == "LINKS   0 of 0 running  0 dead letters"
    assert len(shown.lines) == 3
