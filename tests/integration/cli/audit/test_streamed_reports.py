"""`routerctl audit stream` with `--sign` and `--baseline`: each of its reports is signed and compared.

Spark's own query is left out: the stream polls the lake, as through Spark Connect, and the stages run in this process.
"""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine import stream
from eventd.audit.generate import GeneratorSettings
from eventd.lake.storage import connect
from eventd.runtime.clock import SECOND
from eventd.streams.key_pairs import make_key, pem_of
from tests.integration.cli.conftest import Control, Result
from tests.support.federations import copy_generated
from tests.support.local_spark import LocalSpark

LOSSY = GeneratorSettings(nodes=2, events=100, span=3600 * SECOND, lose=2, seed=1)


class Streamer:
    """Runs `audit stream --once` on a lake with two lost events."""

    def __init__(self, control: Control, folder: Path) -> None:
        self._control = control
        self.lake = folder / "lake"
        self.out = folder / "out"

    def __call__(self, *options: str, code: int = 0) -> Result:
        place = ("--lake", str(self.lake), "--out", str(self.out))
        return self._control("audit", "stream", "--once", *place, *options, "-o", "json", code=code)

    def report(self) -> dict[str, Any]:
        """Return the report of the last batch."""
        report: dict[str, Any] = json.loads((self.out / "report.json").read_text())
        return report


@pytest.fixture
def streamer(control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streamer:
    monkeypatch.setattr(stream, "open_session", lambda *_, **__: nullcontext(LocalSpark()))
    monkeypatch.setattr(stream, "quiet", nullcontext)
    monkeypatch.setattr(stream, "is_remote", lambda _: True)
    copy_generated(LOSSY, str(tmp_path / "lake"))
    return Streamer(control, tmp_path)


def test_each_report_of_a_stream_is_signed(streamer: Streamer, control: Control, tmp_path: Path) -> None:
    key, public = tmp_path / "auditor.pem", tmp_path / "auditor.pub"
    private = make_key(bytes(32))
    key.write_bytes(pem_of(private))
    key.chmod(0o600)
    public.write_bytes(b64encode(private.public_key().public_bytes_raw()))
    verify = ("audit", "verify-report", str(streamer.out), "--auditor-keys", str(public), "-o", "json")
    signatures = set()
    for _ in range(2):
        streamer("--sign", str(key))
        verified = control(*verify).json
        assert (verified["valid"], verified["made_at"]) == (True, streamer.report()["made_at"])
        assert streamer.report()["settings"]["signing_key"] == verified["key"]
        signatures.add((streamer.out / "report.sig").read_bytes())
    assert len(signatures) == 2, "the second report has a signature of its own"
    streamer()
    assert not (streamer.out / "report.sig").exists()


def test_each_report_of_a_stream_is_compared_with_the_baseline(streamer: Streamer, tmp_path: Path) -> None:
    base = connect(str(tmp_path / "base"))
    streamer()
    first = streamer.report()
    lost = [id for one in first["findings"] for id in one["ids"]]
    assert (len(lost), first["baseline"]) == (2, None)
    base.put("report.json", (streamer.out / "report.json").read_bytes())
    against = ("--baseline", base.url, "--fail-on", "new")

    streamer(*against)
    same = streamer.report()
    assert {name: same["baseline"][name] for name in ("new", "known", "gone")} == {"new": 0, "known": 2, "gone": 0}
    assert (same["settings"]["baseline"], same["baseline"]["made_at"]) == (base.url, first["made_at"])
    assert [one["new"] for one in same["findings"]] == [0 for _ in first["findings"]]

    base.put("report.json", json.dumps(first | {"findings": []}).encode())
    ended = streamer(*against, code=4)
    assert (ended.json["failed"], streamer.report()["baseline"]["new"]) == (["new"], 2)
    assert "the audit fails on new" in ended.err


def test_a_baseline_of_another_lake_ends_a_stream_before_it_writes_a_report(streamer: Streamer, tmp_path: Path) -> None:
    streamer()
    before = (streamer.out / "report.json").read_bytes()
    other = json.loads(before)
    other["lake"]["id"] = "another"
    connect(str(tmp_path / "base")).put("report.json", json.dumps(other).encode())
    assert "is about another lake" in streamer("--baseline", str(tmp_path / "base"), code=1).err
    assert (streamer.out / "report.json").read_bytes() == before
