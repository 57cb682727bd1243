"""Reports of audits: listed with their verdicts, and shown as pages that can do nothing."""

from __future__ import annotations

import os
import re
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventd.api.admin import audit_reports
from eventd.api.framework.operations import Services
from eventd.errors import EventdError, Invalid, NotFound, TooLarge, Unavailable
from tests.integration.console.conftest import KEYS, MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.support import operations
from tests.support.console_worlds import HOSTILE
from tests.support.sites import Site

PAGE = "<!doctype html><title>Audit</title><h1>Audit</h1><script>alert(1)</script>"


@pytest.fixture
async def folder(site: Site, tmp_path: Path) -> Path:
    """The folder of reports of the node, which is empty."""
    await site.stop()
    folder = tmp_path / "reports"
    folder.mkdir()
    await site.start(api_keys=KEYS, audit_reports=str(folder))
    return folder


def write(folder: Path, name: str, at: int, page: str = PAGE, **other: Any) -> Path:
    """Write a report as an audit does, at a time in seconds."""
    report = {
        "schema": 1,
        "made_at": "2026-11-29T08:40:51.857384Z",
        "verdict": "incomplete",
        "headline": ["247 of 248 delivered; 1 finding: 1 missing.", "More."],
        "failed": [],
        "lake": {"url": "/lake", "id": "1482adee3e9c7961"},
        "proven_until": None,
        "totals": {"expected": 248, "delivered": 247, "missing": 1, "unproven": 0, "completeness": 99.59},
        "findings": [{"kind": "missing"}],
    }
    own = folder / name
    own.mkdir()
    (own / "report.html").write_text(page)
    (own / "report.json").write_bytes(msgspec.json.encode(report | other))
    os.utime(own / "report.json", (at, at))
    return own


async def ask(site: Site, operation: str, **params: Any) -> Any:
    services = Services(site.running.log, settings=site.running.settings)
    return await operations.run(services, operation, **params)


async def names(site: Site, **params: Any) -> list[str]:
    return [one["name"] for one in (await ask(site, "audits.list", **params))["audits"]]


async def test_reports_are_listed_newest_first_with_their_verdicts(
    site: Site, browser: MakeBrowser, folder: Path
) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert "No report yet." in (await one.get("/console/audits")).text
    write(folder, "monday", 100)
    write(folder, "wednesday", 300, verdict="complete", failed=["findings"])
    write(folder, "tuesday", 200, verdict="unproven")
    (folder / "begun").mkdir()
    (folder / "notes.txt").write_text("not a report")
    shown = await one.get("/console/audits")
    assert re.findall(r'<tr id="au-(\w+)"', shown.text) == ["wednesday", "tuesday", "monday"]
    assert re.findall(r'state s-(\w+)">', shown.text) == ["complete", "unproven", "incomplete"]
    assert "247 of 248 delivered; 1 finding: 1 missing." in shown.text
    first = await one.get("/console/audits?limit=2")
    url = unescape(first.text.partition('rel="next" href="')[2].partition('"')[0])
    assert re.findall(r'<tr id="au-(\w+)"', (await one.get(url)).text) == ["monday"]


async def test_a_report_is_shown_as_a_page_that_can_do_nothing(site: Site, browser: MakeBrowser, folder: Path) -> None:
    write(folder, "a b?#", 100)
    one = browser(site)
    await one.sign_in(READ)
    listed = await one.get("/console/audits")
    (way,) = re.findall(r'href="(/console/audits/[^"]*)"', listed.text)
    shown = await one.get(unescape(way))
    assert (shown.status, shown.text) == (200, PAGE)
    policy = shown.headers["Content-Security-Policy"].split("; ")
    assert policy[:2] == ["sandbox", "default-src 'none'"]
    assert not [rule for rule in policy if "script" in rule or "allow" in rule]
    assert shown.headers["Content-Type"] == "text/html; charset=utf-8"
    assert shown.headers["X-Content-Type-Options"] == "nosniff"
    assert (await one.get("/console/audits/none/report")).status == 404
    refused = await one.get("/console/stream?view=" + way)
    assert refused.status == 404


async def test_a_report_that_was_written_again_is_read_again(site: Site, folder: Path) -> None:
    own = write(folder, "stream", 100)
    assert (await ask(site, "audits.list"))["audits"][0]["missing"] == 1
    (own / "report.json").unlink()
    assert await names(site) == []
    with pytest.raises(NotFound):
        await ask(site, "audits.report", name="stream")
    (own / "report.html").unlink()
    own.rmdir()
    write(folder, "stream", 200, totals={"expected": 3, "delivered": 3, "missing": 0})
    assert (await ask(site, "audits.list"))["audits"][0]["missing"] == 0


async def test_a_report_that_could_not_be_read_once_is_read_again(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "monday", 100)

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as broken:
        broken.setattr(audit_reports, "read_regular", fail)
        assert (await ask(site, "audits.list"))["audits"][0]["problem"] == "report.json cannot be read"
    assert (await ask(site, "audits.list"))["audits"][0]["problem"] == ""


async def test_only_reports_below_the_folder_are_read(site: Site, folder: Path, tmp_path: Path) -> None:
    outside = write(tmp_path, "outside", 100)
    (folder / "linked").symlink_to(outside)
    inner = write(folder, "inner", 100)
    (inner / "report.html").unlink()
    (inner / "report.html").symlink_to(outside / "report.html")
    piped = write(folder, "piped", 90)
    (piped / "report.html").unlink()
    os.mkfifo(piped / "report.html")
    (piped / "report.json").unlink()
    os.mkfifo(piped / "report.json")
    known = {one["name"]: one["problem"] for one in (await ask(site, "audits.list"))["audits"]}
    assert known == {"inner": "", "piped": "report.json cannot be read"}
    for name in ("linked", "inner", "piped", "../outside", "..", ".", "", "inner/../../outside", "x" * 300):
        with pytest.raises((NotFound, Invalid)):
            await ask(site, "audits.report", name=name)


async def test_reports_that_are_none_and_large_ones_are_named(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_reports, "MOST_BYTES", 1000)
    write(folder, "large", 900, headline=["x" * 1000], page="x" * 1001)
    write(folder, "good", 950)
    odd: list[dict[str, Any]] = [
        {"verdict": "perfect"},
        {"made_at": "soon"},
        {"made_at": "2026-11-29"},
        {"totals": {"missing": -1}},
        {"totals": {"missing": 1 << 70}},
        {"headline": "text"},
        {"lake": None},
    ]
    for number, fields in enumerate(odd):
        write(folder, f"odd-{number}", 800 - number, **fields)
    problems = [one["problem"] for one in (await ask(site, "audits.list"))["audits"]]
    assert problems == ["", "report.json has more than 1,000 bytes"] + [
        "report.json is not a report of an audit, or of another version"
    ] * len(odd)
    with pytest.raises(TooLarge):
        await ask(site, "audits.report", name="large")


async def test_a_page_reads_a_bounded_number_of_bytes_and_entries(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write(folder, f"r{number}", 100 - number)
    size = (folder / "r0" / "report.json").stat().st_size
    monkeypatch.setattr(audit_reports, "MOST_READ", 2 * size)
    found, after = [], ""
    while after is not None:
        answer = await ask(site, "audits.list", after=after)
        found.append([one["name"] for one in answer["audits"]])
        after = answer["next"]
    assert found == [["r0", "r1"], ["r2", "r3"], ["r4"]]
    monkeypatch.setattr(audit_reports, "MOST_FOLDERS", 3)
    assert not (await ask(site, "audits.list"))["complete"]
    for token in ("x", "1", "/x", "9" * 30 + "/x"):
        with pytest.raises(Invalid):
            await ask(site, "audits.list", after=token)


async def test_a_folder_that_is_missing_or_not_set_is_said(site: Site, browser: MakeBrowser, folder: Path) -> None:
    one = browser(site)
    await one.sign_in(READ)
    os.rmdir(folder)
    with pytest.raises(Unavailable, match="cannot read the folder"):
        await ask(site, "audits.list")
    assert (await one.get("/console/audits")).status == 503
    await site.stop()
    await site.start(api_keys=KEYS)
    one = browser(site)
    await one.sign_in(READ)
    assert "Set audit_reports" in (await one.get("/console/audits")).text
    with pytest.raises(EventdError):
        await ask(site, "audits.report", name="monday")


async def test_a_key_for_some_groups_sees_no_reports(site: Site, browser: MakeBrowser, folder: Path) -> None:
    one = browser(site)
    await one.sign_in(EDGE)
    assert (await one.get("/console/audits")).status == 403
    await one.sign_in(ADMIN)
    assert (await one.get("/console/audits")).status == 200


async def test_hostile_reports_are_text(site: Site, browser: MakeBrowser, folder: Path) -> None:
    for number, text in enumerate(HOSTILE.values()):
        write(folder, text.replace("/", "_")[:60], number, headline=[text], failed=[text])
    one = browser(site)
    await one.sign_in(READ)
    shown = await one.get("/console/audits")
    assert shown.status == 200
    assert shown.text.count('<tr id="au-') == len(HOSTILE)
    for markup in ("<img src=x", "<script>alert", "\u202e"):
        assert markup not in shown.text
