"""A state that no node writes is reported as corrupt: it does not keep an audit from reporting all else."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Kind
from eventd.audit.review.acknowledgements import read_acknowledgements
from eventd.lake.layout import ACKNOWLEDGEMENTS
from eventd.lake.state_files import state_files
from eventd.lake.storage import Storage, connect
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, copy_generated
from tests.support.local_spark import run_audit

DEEP = "[" * 200_000
CHANGES = {
    "nested too deeply": ('"schema": 1,', f'"schema": 1, "x": {DEEP},'),
    "types of numbers": ('"selection": {}', '"selection": {"types": [1]}'),
    "types that are null": ('"selection": {}', '"selection": {"types": null}'),
    "a type without a list": ('"selection": {}', '"selection": {"types": "x"}'),
    "a prefix that is null": ('"selection": {}', '"selection": {"subjectPrefixes": [null]}'),
    "a payload without pairs": ('"selection": {}', '"selection": {"payload": 5}'),
}


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    copy_generated(FullSettings(nodes=3, events=60, span=3600 * SECOND), str(tmp_path / "lake"))
    return connect(str(tmp_path / "lake"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_malformed_state_is_corrupt(lake: Storage, change: str) -> None:
    path = next(file.path for file in state_files(lake))
    old, new = CHANGES[change]
    text = lake.read(path).decode()
    assert old in text
    lake.put(path, text.replace(old, new).encode())
    report = run_audit(AuditRequest(lake.url, f"{lake.url}-out"))
    (finding,) = (one for one in report.findings if one.kind is Kind.CORRUPT)
    assert finding.ids == (path,)
    assert "the state of the node is not valid: " in finding.detail


def test_an_acknowledgement_that_is_nested_too_deeply_does_not_count(lake: Storage) -> None:
    path = f"{ACKNOWLEDGEMENTS}/aaaaaaaaaaaa.json"
    lake.put(path, f'{{"schema": 1, "x": {DEEP}'.encode())
    assert read_acknowledgements(lake).unreadable == {path: "is not valid: it is nested too deeply"}
