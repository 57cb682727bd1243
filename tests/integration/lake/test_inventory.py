"""The state of a lake stands for every state and manifest, and other programs compute the same."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from eventd.lake.inventory import lake_state, write_inventory
from eventd.lake.layout import expiry_path, slug, state_path
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from tests.support.lakes import EPOCH, ship, ship_state
from tests.support.source import ROOT

DIGESTED = b'{"schema": 1, "id": "x"}'


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = connect(str(tmp_path / "lake"))
    for book in (Ledger.EVENTS, Ledger.DELIVERIES):
        ship(storage, 0, 4, book=book)
        ship(storage, 4, 9, book=book)
    ship_state(storage, 9)
    return storage


def state(storage: Storage) -> str:
    return lake_state(survey(storage).digests)


def test_the_command_on_the_page_computes_the_same(storage: Storage) -> None:
    storage.put(expiry_path(slug("site-a"), EPOCH), b"{}")
    page = (ROOT / "docs" / "reference" / "lake.md").read_text()
    command = page.split("\n## The inventory\n")[1].split("$ find ")[1].split("\n")[0]
    done = subprocess.run(
        f"find {command}", shell=True, cwd=storage.locate(""), capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [state(storage), "-"]


def test_sha256sum_checks_a_lake_against_its_inventory(storage: Storage) -> None:
    digests = survey(storage).digests
    assert len(digests) == 5
    check = ["sha256sum", "--check", "--strict", "--quiet"]
    done = subprocess.run(check, input=write_inventory(digests), cwd=storage.locate(""), capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"")


def test_any_byte_of_a_state_or_a_manifest_changes_it(storage: Storage) -> None:
    seen = {state(storage)}
    for path in survey(storage).digests:
        text = storage.read(path)
        storage.put(path, text + b"\n")
        seen.add(state(storage))
        storage.put(path, b"not JSON")
        seen.add(state(storage))
        storage.put(path, text)
    assert len(seen) == 1 + 2 * 5


def test_what_does_not_count_does_not_change_it(storage: Storage) -> None:
    before = state(storage)
    storage.put("landing/events/notes.json", DIGESTED)
    storage.put(expiry_path(slug("site-a"), EPOCH), b"{}")
    storage.put("acknowledgements/a.json", DIGESTED)
    assert state(storage) == before


def test_a_manifest_stands_for_the_rows(storage: Storage) -> None:
    found = survey(storage)
    for segment in found.segments:
        text = storage.read(segment.place.manifest)
        assert found.digests[segment.place.manifest] == hashlib.sha256(text).hexdigest()
        assert json.loads(text)["sha256"] == hashlib.sha256(storage.read(segment.place.data)).hexdigest()


def test_the_state_of_a_node_counts(storage: Storage) -> None:
    path = state_path("site-a", EPOCH)
    assert survey(storage).digests[path] == hashlib.sha256(storage.read(path)).hexdigest()
