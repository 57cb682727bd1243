"""Generated ledgers: the six tables agree with each other, and with the list of injected faults."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventd.errors import Conflict, Invalid
from eventd.lake.schema import Ledger
from eventd.log.delivery.evidence import read_answer, read_proof, read_signer
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, generate
from tests.support.plain_balance import LakeRows, balance, read_books

SMALL = FullSettings(nodes=4, events=400, span=6 * 3600 * SECOND, seed=1)
IN_ORDER = {
    "short segments": {"nodes": 2, "types": 1, "span": 3600 * SECOND, "events": 1500, "segment_rows": 1000},
    "nine days": {"nodes": 2, "span": 9 * 24 * 3600 * SECOND},
    "relayed": {"nodes": 6, "in_path": True, "expire": 9, "dead_letter": 9, "retry": 20, "pending": 7},
    "silent nodes": {"nodes": 6, "silent": 2},
}
WITH_FAULTS = {
    "rings": {"nodes": 6, "peers": 2, "types": 40, "skew": 90 * SECOND, "groups": 3, "payloads": True},
    "silent nodes": {**IN_ORDER["silent nodes"], "selectors": True, "span": 2 * 24 * 3600 * SECOND},
    "everything": {
        **{"nodes": 7, "groups": 2, "skew": 40 * SECOND, "in_path": True, "selectors": True},
        **{"expire": 5, "dead_letter": 5, "retry": 9, "pending": 4},
    },
}
FAULTS = {
    "missing": {"lose": 12},
    "duplicate": {"duplicate": 7},
    "forged": {"forge": 6},
    "loop": {"loop": 6},
    "disagreement": {"disagree": 6},
    "corrupt": {"corrupt": 4},
    "epoch": {"epoch": 2},
}
EVERY_FAULT = {name: count for fault in FAULTS.values() for name, count in fault.items()}


@pytest.fixture
def lake() -> Iterator[str]:
    """The address of an empty lake in this process's memory: nothing here waits for a disk."""
    with memory_lake() as url:
        yield url


@contextmanager
def memory_lake() -> Iterator[str]:
    url = f"memory://lake-{uuid4().hex}"
    yield url
    fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.fixture(scope="module")
def books() -> LakeRows:
    """All rows of a lake in which everything occurs that is not a fault, for reading only."""
    options = {"nodes": 6, "in_path": True, "selectors": True, "skew": 30 * SECOND, "retry": 10}
    with memory_lake() as url:
        generate(replace(SMALL, **options, dead_letter=5, expire=2), url)
        return read_books(url)


@pytest.mark.parametrize("options", IN_ORDER.values(), ids=IN_ORDER)
def test_books_in_which_nothing_is_hidden_balance(lake: str, options: dict[str, int]) -> None:
    asked = replace(SMALL, **options)
    truth = generate(asked, lake)
    assert truth.findings == ()
    assert balance(lake) == []
    books = read_books(lake)
    own = sum(row["own"] for row in books.rows[Ledger.EVENTS])
    assert own == truth.totals["events"]
    assert own == asked.events or asked.silent


@pytest.mark.parametrize("options", WITH_FAULTS.values(), ids=WITH_FAULTS)
def test_faults_of_every_kind_do_not_touch_each_other(
    lake: str, options: dict[str, int], chance: random.Random
) -> None:
    asked = replace(SMALL, **(options | EVERY_FAULT | {"events": 1000, "seed": chance.getrandbits(32)}))
    truth = generate(asked, lake)
    planted: Counter[str] = Counter()
    for finding in truth.findings:
        planted[finding.kind] += finding.events
    assert planted == {kind: sum(counts.values()) for kind, counts in FAULTS.items()}
    assert Counter(balance(lake)) == Counter(truth.findings)


FEW = st.integers(0, 4)


@st.composite
def any_settings(draw: st.DrawFn) -> FullSettings:
    """Books of any shape, with a little of everything."""
    through = draw(st.booleans())
    nodes = draw(st.integers(6, 8) if through else st.integers(4, 7))
    some: dict[str, Any] = {name: draw(FEW) for fault in FAULTS.values() for name in fault}
    some |= {name: draw(FEW) for name in ("expire", "dead_letter", "retry", "pending")}
    return FullSettings(
        nodes=nodes,
        peers=None if through else draw(st.none() | st.integers(2, nodes - 1)),
        events=draw(st.integers(720, 800)),
        seed=draw(st.integers(0, 2**32 - 1)),
        groups=draw(st.integers(1, 3)),
        types=draw(st.integers(1, 12)),
        span=draw(st.integers(1, 60)) * 3600 * SECOND,
        skew=draw(st.sampled_from([0, SECOND, 100 * SECOND])),
        segment_rows=draw(st.sampled_from([1000, 10**6])),
        in_path=through,
        selectors=draw(st.booleans()),
        silent=draw(st.integers(0, 1)) if nodes > 4 else 0,
        **some,
    )


@settings(max_examples=2)
@given(any_settings())
def test_whatever_is_asked_for_is_what_is_hidden(asked: FullSettings) -> None:
    with memory_lake() as url:
        truth = generate(asked, url)
        found = Counter(balance(url))
        assert found == Counter(truth.findings)
        assert sum(finding.events for finding in truth.findings) == sum(
            getattr(asked, name) for fault in FAULTS.values() for name in fault
        )


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_settings_make_the_same_files(tmp_path: Path) -> None:
    asked = replace(SMALL, **(WITH_FAULTS["everything"] | EVERY_FAULT | {"events": 1000}))
    truths = [generate(asked, str(tmp_path / str(processes)), processes=processes) for processes in (1, 2)]
    assert truths[0] == truths[1]
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


def test_another_seed_makes_other_books() -> None:
    asked = FullSettings(nodes=2, events=100, span=3600 * SECOND, lose=3)
    with memory_lake() as one, memory_lake() as two:
        assert generate(replace(asked, seed=1), one).findings != generate(replace(asked, seed=2), two).findings


def test_the_lake_says_that_it_is_whole(books: LakeRows) -> None:
    assert books.seen.troubles == []
    assert {state.node for state in books.seen.nodes} == {f"site-0{number}" for number in range(1, 7)}


def test_numbers_and_times_rise_as_they_would(books: LakeRows) -> None:
    for node in {state.node for state in books.seen.nodes}:
        log = [row for row in books.rows[Ledger.EVENTS] if row["node"] == node]
        assert [row["position"] for row in log] == list(range(1, len(log) + 1))
        assert [row["seq"] for row in log] == [row["position"] for row in log]
        assert [row["recorded_at"] for row in log] == sorted(row["recorded_at"] for row in log)
        assert all(row["event_at"] < row["recorded_at"] for row in log if row["own"])
    for row in books.rows[Ledger.DELIVERIES]:
        assert row["recorded_at"] <= row["attempt_at"] < row["done_at"]


def test_ranges_of_a_link_follow_each_other(books: LakeRows) -> None:
    links = {(row["node"], row["peer"]) for row in books.rows[Ledger.RECEIPTS]}
    for link in links:
        ranges = [
            (row["after"], row["upto"])
            for row in books.rows[Ledger.RECEIPTS]
            if (row["node"], row["peer"]) == link and not row["repair"]
        ]
        ranges.sort()
        assert ranges[0][0] == 0
        assert all(one[1] == two[0] for one, two in pairwise(ranges))


def test_receipts_read_as_the_real_thing(books: LakeRows) -> None:
    given = {row["batch_id"]: row for row in books.rows[Ledger.INBOUND]}
    refused = 0
    for row in books.rows[Ledger.RECEIPTS]:
        proof, signer = read_proof(row["receipt"]), read_signer(row["receipt"])
        if proof is None:
            assert (row["status"], row["sent"], row["receipt_digest"]) == (0, 0, "")
            continue
        assert proof.digest == row["receipt_digest"] == given[row["batch_id"]]["receipt_digest"]
        assert proof == read_answer(given[row["batch_id"]]["receipt"])
        assert (proof.accepted, proof.duplicates, proof.refused) == (row["accepted"], row["duplicates"], row["refused"])
        assert proof.accepted + proof.duplicates + proof.refused == row["sent"]
        assert proof.upto == row["peer_upto"]
        assert signer == (row["receipt_key_id"], row["receipt_alg"])
        refused += proof.refused
    assert refused == 5


def test_both_ends_have_the_same_events(books: LakeRows) -> None:
    same = ("id", "type", "subject", "event_at", "expires_at", "bytes", "fingerprint", "digest")
    by_id: dict[str, set[object]] = {}
    for row in books.rows[Ledger.EVENTS]:
        by_id.setdefault(row["id"], set()).add(tuple(row[name] for name in same))
        assert row["digest"][:8] == row["fingerprint"].to_bytes(8, "big", signed=True)
    assert {len(versions) for versions in by_id.values()} == {1}
    assert len({row["fingerprint"] for row in books.rows[Ledger.EVENTS]}) == len(by_id) == SMALL.events


def test_a_place_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("here")
    with pytest.raises(Conflict, match="not empty"):
        generate(SMALL, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 1},
        {"events": 0},
        {"peers": 4},
        {"nodes": 4, "peers": 1, "loop": 1},
        {"in_path": True},
        {"epoch": 5},
        {"lose": 300},
        {"span": 1},
        {"corrupt": 100},
        {"silent": 1},
    ],
    ids=str,
)
def test_books_that_cannot_be_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(Invalid) as caught:
        generate(replace(SMALL, **wrong), str(tmp_path / "lake"))
    assert caught.value.hint
