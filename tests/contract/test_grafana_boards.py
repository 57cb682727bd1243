"""The boards ask only for what a node has, show all of it, and load in Grafana as far as their JSON tells."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
import yaml

from tests.support.alert_rules import SCRAPE
from tests.support.grafana.boards import (
    BOARDS,
    FOLDER,
    LEFT_OUT,
    VALUES,
    expressions,
    filled,
    graphs,
    panels,
    rendered,
    variables,
)
from tests.support.grafana.panels import COLUMNS
from tests.support.promql import faults, known_metrics, read_expression

LOADED: dict[str, dict[str, Any]] = {name: json.loads((FOLDER / name).read_text()) for name in BOARDS}


def test_the_files_are_those_that_the_program_writes() -> None:
    for name in BOARDS:
        assert (FOLDER / name).read_text() == rendered(name), "run python -m tests.support.grafana"
    assert {file.name for file in FOLDER.glob("*.json")} == set(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_loads_without_questions(name: str) -> None:
    board = LOADED[name]
    assert "__inputs" not in board, "provisioning breaks on it"
    assert "id" not in board, "Grafana gives it one"
    assert re.fullmatch(r"routerd-eventd-[a-z]+", board["uid"])
    assert "datasource" in variables(board)
    sources = {json.dumps(one["datasource"]) for one in [*graphs(board), *board["annotations"]["list"]]}
    sources |= {json.dumps(target["datasource"]) for panel in graphs(board) for target in panel["targets"]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}


def test_boards_have_addresses_that_links_may_keep() -> None:
    assert {name: board["uid"] for name, board in LOADED.items()} == {
        "federation.json": "routerd-eventd-federation",
        "node.json": "routerd-eventd-node",
        "topics-and-callbacks.json": "routerd-eventd-topics",
    }


def test_each_board_links_to_the_others_with_time_and_variables() -> None:
    for board in LOADED.values():
        (link,) = board["links"]
        assert link["type"] == "dashboards"
        assert all(set(link["tags"]) <= set(other["tags"]) for other in LOADED.values())
        assert link["includeVars"]
        assert link["keepTime"]


@pytest.mark.parametrize("name", BOARDS)
def test_ids_are_unique_and_panels_do_not_overlap(name: str) -> None:
    found = [*panels(LOADED[name])]
    assert len({panel["id"] for panel in found}) == len(found)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= COLUMNS for panel in found)
    for shown in (LOADED[name]["panels"], *(panel.get("panels", []) for panel in found)):
        for one, other in itertools.combinations(shown, 2):
            assert not overlap(one["gridPos"], other["gridPos"]), f"{one['title']} and {other['title']}"


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not beside and not above


@pytest.mark.parametrize("name", BOARDS)
def test_panels_fill_their_rows(name: str) -> None:
    """A line of panels is as wide as the board, or the last of its row."""
    board = LOADED[name]
    for row in (board["panels"], *(panel["panels"] for panel in board["panels"] if panel.get("panels"))):
        lines = {y: [*line] for y, line in itertools.groupby(row, key=lambda panel: panel["gridPos"]["y"])}
        for line in lines.values():
            assert len({panel["gridPos"]["h"] for panel in line}) == 1, line[0]["title"]
            assert sum(panel["gridPos"]["w"] for panel in line) == COLUMNS, line[0]["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_each_panel_says_what_it_shows_in_which_unit(name: str) -> None:
    titles = [(panel["title"], panel["description"]) for panel in graphs(LOADED[name])]
    assert len(set(titles)) == len(titles)
    for panel in graphs(LOADED[name]):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"].get("thresholds") or panel["type"] == "heatmap"
        for target in panel["targets"]:
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            known = {label for metric in named(target["expr"], LOADED[name]) for label in known_metrics()[metric]}
            assert labels <= known | {"instance"}, panel["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_each_query_names_only_metrics_and_labels_that_a_node_has(name: str) -> None:
    found = {expression: problems for expression in expressions(name) if (problems := faults(expression))}
    assert found == {}
    assert expressions(name)


@pytest.mark.parametrize("name", BOARDS)
def test_variables_are_filled_from_metrics_and_are_used(name: str) -> None:
    board = LOADED[name]
    used = {name for panel in graphs(board) for one in panel["targets"] for name in re.findall(r"\$(\w+)", one["expr"])}
    assert used - VALUES.keys() == variables(board).keys() - {"datasource"}
    for variable in variables(board).values():
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert asked
            assert faults(filled(asked[1], board)) == []
            assert all(asked[2] in known_metrics()[one] | {"instance"} for one in named(asked[1], board))


def named(expression: str, board: dict[str, Any]) -> list[str]:
    return [selector.metric for selector in read_expression(filled(expression, board)).selectors]


def test_annotations_are_alerts_and_restarts() -> None:
    for board in LOADED.values():
        asked = [filled(one["expr"], board) for one in board["annotations"]["list"]]
        assert [selector.metric for one in asked for selector in read_expression(one).selectors] == [
            "ALERTS",
            "process_start_time_seconds",
        ]


def test_every_metric_is_on_a_board_or_left_out_for_a_reason() -> None:
    shown = {base(metric) for board in LOADED.values() for panel in graphs(board)
             for target in panel["targets"] for metric in named(target["expr"], board)}  # fmt: skip
    everything = {base(metric) for metric in known_metrics()} - {"up"}
    assert sorted(everything - shown) == sorted(LEFT_OUT)


def base(metric: str) -> str:
    """The name of a metric without the endings of a histogram's series."""
    short = re.sub(r"_(bucket|count|sum)$", "", metric)
    return short if f"{short}_bucket" in known_metrics() else metric


def test_one_meaning_has_one_colour_on_all_boards() -> None:
    colours: dict[str, set[str]] = {}
    for board in LOADED.values():
        for panel in graphs(board):
            for override in panel["fieldConfig"]["overrides"]:
                for one in override["properties"]:
                    if one["id"] == "color":
                        colours.setdefault(override["matcher"]["options"], set()).add(one["value"]["fixedColor"])
    assert colours
    assert all(len(each) == 1 for each in colours.values())


def test_provisioning_reads_the_boards_and_scrapes_as_often_as_the_example() -> None:
    folder = FOLDER / "provisioning"
    dashboards = yaml.safe_load((folder / "dashboards.yml").read_text())
    assert [(one["type"], one["folder"]) for one in dashboards["providers"]] == [("file", "routerd-eventd")]
    (source,) = yaml.safe_load((folder / "datasources.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    interval = yaml.safe_load(SCRAPE.read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval
