"""Answers of a support bundle to questions about a part of what was recorded."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from eventd.cli.gateway.bundle import BundleGateway
from eventd.errors import NotFound

RATES = {
    "at": "2026-11-29T12:00:00Z",
    "intervalSeconds": 5,
    "complete": True,
    "series": [
        {"kind": "link", "group": "edge", "node": "beta", "eventsPerSecond": [1.0, 2.0, 3.0]},
        {"kind": "link", "group": "core", "node": "beta", "eventsPerSecond": [4.0, 5.0, None]},
        {"kind": "topic", "topic": "orders", "recordsPerSecond": [6.0, 7.0, 8.0]},
    ],
    "next": "token",
}


@pytest.fixture
def bundle(tmp_path: Path) -> BundleGateway:
    answers: dict[str, Any] = {
        "manifest.json": {"bundle": 1},
        "answers/rates.show.json": [{"params": {"limit": 200}, "answer": RATES}],
        "answers/queues.list.json": [{"params": {}, "answer": {"queues": [{"queue": "jobs"}], "next": "jobs"}}],
        "answers/links.status.json": [{"params": {"group": "edge"}, "answer": {}}],
    }
    path = tmp_path / "b.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, value in answers.items():
            content = json.dumps(value).encode()
            member = tarfile.TarInfo(f"b/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return BundleGateway(path)


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ({"kind": "link", "seconds": 10}, [[2.0, 3.0], [5.0, None]]),
        ({"kind": "link", "group": "core"}, [[4.0, 5.0, None]]),
        ({"link": "beta", "group": "edge", "seconds": 900}, [[1.0, 2.0, 3.0]]),
        ({"topic": "orders"}, [[6.0, 7.0, 8.0]]),
        ({"kind": "callback"}, []),
    ],
)
async def test_rates_of_a_part_are_those_of_the_recorded_series(
    bundle: BundleGateway, asked: dict[str, Any], values: list[Any]
) -> None:
    answer = await bundle.call("rates.show", limit=200, after="", **asked)
    found = [series.get("eventsPerSecond") or series.get("recordsPerSecond") for series in answer["series"]]
    assert (found, answer["next"]) == (values, None)


async def test_the_only_page_of_a_bundle_is_the_last(bundle: BundleGateway) -> None:
    answer = await bundle.call("queues.list", limit=200, after="")
    assert answer == {"queues": [{"queue": "jobs"}], "next": None}


async def test_a_missing_answer_is_named_with_its_parameters_as_words(bundle: BundleGateway) -> None:
    with pytest.raises(NotFound, match=r"no answer to links.status for group=core") as refused:
        await bundle.call("links.status", group="core")
    assert refused.value.hint == "it has those for group=edge"
