"""The command `federation event release`: an id is freed with a proof file, and every way to fail has its exit code."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Outcome
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.offers import OfferFrom
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.testing import draft
from federation.history.witnessing import KeySource
from tests.integration.cli.conftest import Control
from tests.support.growing_tree import GrowingTree

TRUE, SQUATTER = (draft("e1", group="edge", node=node) for node in ("cloud", "evil"))
RELEASE = ("federation", "event", "release", "e1", "--proof")


class SquattedNode:
    """`routerctl` on the database of a node that has the squatter's event, and knows the key of cloud."""

    def __init__(self, control: Control, url: str, folder: Path) -> None:
        self.control, self.url = control, url
        self.proof = folder / "proof.json"
        self.proof.write_bytes(GrowingTree(node="cloud", group="edge").prove(TRUE.body).encode())
        control.edge()
        assert self.take_id() is Outcome.NEW

    def take_id(self) -> Outcome:
        """Learn the key of cloud from a link that cloud alone can sign, and store the squatter's event."""

        async def run() -> Outcome:
            with closing(Database(self.url)) as database:
                log = await EventLog.open(database, SystemClock())
                topic, tree = await log.topic("group:edge"), GrowingTree("u", node="cloud", group="edge")
                offered = OfferFrom(topic, "edge", "cloud", KeySource.OWNED, {}, ("cloud",), tree.offer())
                await database.write(decide, offered, log.clock.now())
                outcome = (await log.append(topic, [SQUATTER])).outcomes[0]
                await log.close()
                return outcome

        return asyncio.run(run())


@pytest.fixture
def node(control: Control, monkeypatch: pytest.MonkeyPatch, migrated_sqlite_url: str, tmp_path: Path) -> SquattedNode:
    monkeypatch.setenv("EVENTD_DATABASE_URL", migrated_sqlite_url)
    return SquattedNode(control, migrated_sqlite_url, tmp_path)


def test_an_id_is_freed_and_the_deed_recorded(node: SquattedNode) -> None:
    said = node.control(*RELEASE, str(node.proof)).err
    assert said.startswith("e1 is free in group edge: an event of evil, with the digest ")
    assert "proven: cloud admitted the event of cloud as leaf 1 of eventd/edge/cloud/tttt" in said
    assert "for evidence: routerctl prove e1 --group edge --position 1" in said
    described = node.control("federation", "event", "describe", "e1", "--position", "1").out
    assert "its id was released to the event at leaf 1 of eventd/edge/cloud/tttt" in described
    assert "--position" in node.control("prove", "e1", code=3).err
    assert "kept no history" in node.control("prove", "e1", "--position", "1", code=4).err
    [action] = json.loads(node.control("actions", "-o", "json").out)[:1]
    assert (action["operation"], action["object"]) == ("events.release", "event edge/e1")
    assert "proof" not in str(action["arguments"])
    assert "is free in group edge" in node.control(*RELEASE, str(node.proof), code=3).err


def test_the_answer_names_both_events(node: SquattedNode) -> None:
    answer = json.loads(node.control(*RELEASE, str(node.proof), "-o", "json").out)
    assert (answer["holder"]["sourceNode"], answer["proven"]["sourceNode"]) == ("evil", "cloud")


@pytest.mark.parametrize(
    ("content", "code", "reason"),
    [
        ("{", 1, "is not a proof file"),
        ("[]", 1, "is not a proof file"),
        (f'{{"x": "{"y" * (4 << 20)}"}}', 1, "is larger than a proof file"),
        ("{}", 4, "the file proves nothing"),
    ],
    ids=["no-json", "a-list", "too-large", "no-members"],
)
def test_what_proves_nothing_frees_nothing(node: SquattedNode, content: str, code: int, reason: str) -> None:
    node.proof.write_text(content)
    assert reason in node.control(*RELEASE, str(node.proof), code=code).err
    assert node.control("federation", "event", "find", "e1").lines[1].split()[:2] == ["edge", "yes"]


def test_a_pin_of_another_key_proves_nothing(node: SquattedNode) -> None:
    node.proof.write_bytes(GrowingTree(node="other", group="edge").prove(TRUE.body).encode())
    said = node.control(*RELEASE, str(node.proof), code=4).err
    assert "the key of the node other is unknown here" in said
    assert "history.keys of the EventGroup" in said
