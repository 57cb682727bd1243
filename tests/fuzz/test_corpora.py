"""The corpora of the fuzzer are replayed, and the fuzzer's own parts can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.campaign import RESULTS, failure_of
from tests.fuzz.corpus import FOLDER, ROOT, CorpusInput, edges_of, minimised, read_corpus, write_corpus
from tests.fuzz.registry import TARGETS, find
from tests.fuzz.target import MOST_BYTES, FuzzTarget, LimitExceeded, pieces, replay

MOST_OF_ALL = 2 << 20


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus_is_handled_as_promised(name: str) -> None:
    target = find(name)
    inputs = [one.data for one in read_corpus(name)]
    assert inputs, f"run make fuzz TARGET={name} ARGS=--keep"
    replay(target, [*target.seeds(), *inputs])


def test_each_corpus_belongs_to_a_target_and_all_are_small() -> None:
    files = [*FOLDER.iterdir()]
    assert {file.name for file in files} == {f"{name}.jsonl" for name in TARGETS}
    assert sum(file.stat().st_size for file in files) <= MOST_OF_ALL
    assert RESULTS.exists()


def test_the_page_names_every_target() -> None:
    page = (ROOT / "docs" / "operations" / "fuzzing.md").read_text()
    assert [name for name in TARGETS if f"`{name}`" not in page] == []


def test_a_parser_that_reads_something_else_than_it_writes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    target = find("structured-fields")
    assert failure_of(target, b"a=1") is None
    monkeypatch.setattr("tests.fuzz.targets.structured.write_member", lambda member: "2")
    assert isinstance(failure_of(target, b"a=1"), AssertionError)


def test_an_error_that_is_not_declared_fails() -> None:
    target = FuzzTarget("odd", lambda data: data.decode(), tuple)
    assert failure_of(target, b"a") is None
    assert isinstance(failure_of(target, b"\xff"), UnicodeDecodeError)


def test_an_input_that_takes_too_much_memory_or_time_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LimitExceeded, match="MiB"):
        replay(FuzzTarget("large", lambda data: bytes(MOST_BYTES + 1), tuple), [b""])
    monkeypatch.setattr("tests.fuzz.target.MOST_SECONDS", 0.0)
    with pytest.raises(LimitExceeded, match="s, more than"):
        replay(FuzzTarget("slow", lambda data: sorted(range(1000)), tuple), [b""])


def test_a_corpus_is_minimised_by_edges_and_keeps_its_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    target = find("structured-fields")
    found = [CorpusInput(b"abc=1"), CorpusInput(b"b=2"), CorpusInput(b"b=?1"), CorpusInput(b"c=3", "a defect")]
    kept, edges = minimised(target, found)
    assert edges == len(edges_of(target, b"b=2") | edges_of(target, b"b=?1"))
    assert {one.data for one in kept} == {b"c=3", b"b=?1"}
    write_corpus(target.name, kept)
    assert read_corpus(target.name) == [CorpusInput(b"c=3", "a defect"), CorpusInput(b"b=?1")]


def test_pieces_are_all_of_the_bytes_behind_their_sizes() -> None:
    assert [*pieces(b"\x00\x01\x02\x00\x00\x00\x00\x00abcdefgh")] == [b"a", b"bc", b"def", b"g", b"h"]
    assert [*pieces(b"\x00")] == []
