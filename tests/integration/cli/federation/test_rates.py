"""The command `federation rates`."""

from __future__ import annotations

from typing import Any

from eventd.cli.federation.rates import RATES
from tests.integration.cli.conftest import Control


def test_a_database_without_a_node_has_no_rates_and_the_command_says_so(routerctl: Control) -> None:
    routerctl.edge()
    told = routerctl("federation", "rates", "-o", "json").json
    assert (told["series"], told["complete"], told["next"]) == ([], False, None)
    assert "rates are counted by a running node" in routerctl("federation", "rates", "--kind", "link").err


def test_a_row_shows_means_of_what_is_known() -> None:
    link: dict[str, Any] = {"kind": "link", "group": "edge", "node": "b", "bytesPerSecond": [None, 8.0]}
    link |= {"eventsPerSecond": [None] * 100 + [0.0] * 12 + [4.0, 2.0], "lagSeconds": [None, 90.0]}
    shown = [column.cell(link) for column in RATES]
    assert shown == ["link", "edge", "b", "2.0", "0.5", "0.4", "-", "1m30s", "8.0"]
    node = {"kind": "node", "appendedPerSecond": [None], "receivedPerSecond": [3.0]}
    assert [column.cell(node) for column in RATES][2:8] == ["-", "-", "-", "-", "3.0", "-"]
