"""The comparison of `tests.bench.rivals`: medians, ratios, Python clients, and contestants without figures."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench.rivals.__main__ import CLIENTS, FAMILIES, contestants
from tests.bench.rivals.contest import Figures, NotMeasured, PythonClient, Rival, make_bodies, through_client
from tests.bench.rivals.installing import IN_WHEELS, pins
from tests.bench.rivals.table import Row, markdown, picture, ratio
from tests.support.source import ROOT


def figures(catch_up: float, p50: float) -> dict[str, float]:
    more = {
        "publish": catch_up / 2,
        "p99": p50 * 3,
        "cpu_a": 1.5,
        "cpu_b": 2.5,
        "core": 0.4,
        "fsync": 0.2,
        "load": 0.5,
    }
    return {"catch_up": catch_up, "p50": p50, **more}


def through(rate: float) -> dict[str, float]:
    return {"through_client": rate, "client_core": 0.9}


OWN = Row(
    "ours",
    "0.1",
    "flushed",
    "none",
    [one | through(60_000) for one in (figures(300_000, 1.0), figures(100_000, 9.0), figures(200_000, 2.0))],
    client="our own",
)
FAST = Row("fast", "7", "in memory", "`a 1`", [figures(400_000, 0.5)])
CLIENT = Row("client", "7", "in memory", "", [figures(400_000, 0.5) | through(20_000)], client="fast-py 1.0")
LACKING = Row("lacking", "7", "in memory", "", [figures(400_000, 0.5)], client_missing="fast-py is not installed")
SLOW = Row("slow", "3", "flushed", "", [figures(50_000, 8.0)])
GONE = Row("gone", missing="gone-server is not installed")


def lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {name} ")]


def test_figures_are_medians_of_the_rounds() -> None:
    told = lines(markdown([OWN, FAST], {}), "ours")
    assert told[0] == (
        "| ours | 200,000 | 1.5 | 2.5 | 2.00 | 6.00 | 100,000 | 0.40 | – | – | 60,000 | 0.90 | 0.20 | 0.5 |"
    )


def test_how_far_rounds_lie_apart_is_told() -> None:
    apart = "| ours | 100,000 – 300,000 | 1.00 – 9.00 | 3.00 – 27.00 | 50,000 – 150,000 | – | 60,000 – 60,000 |"
    assert apart in markdown([OWN, FAST], {})
    assert "lowest and the highest" not in markdown([FAST, SLOW], {})


@pytest.mark.parametrize(("row", "rate", "time"), [(FAST, 0.5, 0.25), (SLOW, 4.0, 4.0)])
def test_a_ratio_above_one_is_better_for_rates_and_for_times(row: Row, rate: float, time: float) -> None:
    assert ratio(OWN, row, "catch_up") == rate
    assert ratio(OWN, row, "p50") == time
    assert f"| {row.name} | {rate:.2f} | {time:.2f} | {time:.2f} | {rate:.2f} | – |" in markdown([OWN, row], {})


def test_publishing_through_a_client_has_its_figure_and_its_ratio_where_there_is_one() -> None:
    text = markdown([OWN, FAST, CLIENT], {})
    assert [line.split(" | ")[7:12] for line in lines(text, "client")[:1]] == [["0.40", "–", "–", "20,000", "0.90"]]
    assert [line.split(" | ")[7:10] for line in lines(text, "fast")[:1]] == [["0.40", "–", "–"]]
    assert lines(text, "client")[1].endswith("| 3.00 |")
    assert lines(text, "client")[-1].endswith("| fast-py 1.0 |")
    assert lines(text, "ours")[-1].endswith("| our own |")


def test_a_client_that_is_missing_is_named_beside_the_figures_that_there_are() -> None:
    text = markdown([OWN, LACKING], {})
    assert text.endswith("Not measured:\n\n- lacking, through its client: fast-py is not installed.\n")
    assert lines(text, "lacking")[0].split(" | ")[8] == "–"


def test_who_was_not_measured_is_named_with_the_reason_and_nowhere_else() -> None:
    text = markdown([OWN, FAST, GONE], {"events": 10})
    assert text.startswith("Run: events 10.\n")
    assert text.endswith("Not measured:\n\n- gone: gone-server is not installed.\n")
    assert not lines(text, "gone")


def test_the_tables_tell_what_each_promises() -> None:
    assert "| fast | 7 | in memory | `a 1` | – |" in markdown([OWN, FAST], {})


def test_without_rivals_there_are_no_ratios() -> None:
    assert "How many times" not in markdown([OWN, GONE], {})


def test_the_picture_has_a_bar_for_each_ratio_also_beyond_the_scale() -> None:
    image = ElementTree.fromstring(picture([OWN, FAST, GONE, Row("far", rounds=[figures(1, 1e6)])]))
    bars = image.findall(".//{*}rect[{*}title]")
    assert [bar.findtext("{*}title") for bar in bars[:4]] == ["0.50", "0.25", "0.25", "0.50"]
    assert len(bars) == 8  # without those of clients that they have not
    assert len(ElementTree.fromstring(picture([OWN, CLIENT])).findall(".//{*}rect[{*}title]")) == 5
    assert all(
        float(bar.attrib["x"]) >= 0 and float(bar.attrib["x"]) + float(bar.attrib["width"]) <= 800 for bar in bars
    )


def test_bodies_have_the_wanted_size_and_differ() -> None:
    bodies = make_bodies(300, 348)
    assert {len(body) for body in bodies} == {348}
    assert len(set(bodies)) == 300


async def half(port: int, bodies: Sequence[bytes]) -> Figures:
    return through(port + len(bodies))


def client(package: str) -> PythonClient:
    return PythonClient(package, "`push`", half)


def rival(of: PythonClient | None) -> Rival:
    return Rival("nats", "fast", "", "", lambda stack, folder: server([]), of)


def server(held: Sequence[bytes]) -> Any:
    """An A that holds just that."""
    return SimpleNamespace(port=7, read_at_a=lambda count: [*held])


def test_what_came_through_a_client_is_read_back() -> None:
    bodies = make_bodies(3, 348)
    assert through_client(server(bodies), client("pytest"), bodies) == through(10)
    for held in (bodies[:2], bodies[::-1]):
        with pytest.raises(NotMeasured, match="A differs from what was sent"):
            through_client(server(held), client("pytest"), bodies)


def test_a_client_tells_its_version_and_how_it_is_used_or_that_it_is_missing() -> None:
    assert rival(client("pytest")).client_version() == f"pytest {pytest.__version__}, `push`"
    with pytest.raises(NotMeasured, match="the Python package no-such-client is not installed"):
        rival(client("no-such-client")).client_version()
    assert rival(None).client_version() == ""


def test_what_pip_brings_is_pinned_in_a_group_that_nothing_else_installs() -> None:
    brought = sorted([*CLIENTS.values(), *IN_WHEELS.values()])
    wanted = pins(brought)
    assert [pin.partition("==")[0] for pin in wanted] == brought
    assert all(pin.partition("==")[2] for pin in wanted)
    assert pins(["pika"]) == [pin for pin in wanted if pin.startswith("pika==")]
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    others = [told["project"]["dependencies"], *told["project"]["optional-dependencies"].values()]
    assert not {*wanted} & {one for those in [*others, told["dependency-groups"]["dev"]] for one in those}


def test_ours_stands_first_whatever_is_measured_beside_it() -> None:
    assert [one.family for one in contestants([])] == ["own"]
    assert [one.family for one in contestants(["postgres"])] == ["own", "postgres"]
    assert {one.family for one in contestants(FAMILIES)} == {"own", *FAMILIES}
