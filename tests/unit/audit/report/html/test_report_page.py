"""The page of a report as a document: complete, in order, and safe whatever a name contains."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from eventd.audit.report.findings import EventEvidence, Finding, Kind
from eventd.audit.report.html import render
from eventd.audit.report.html.findings import entry_parts
from eventd.audit.report.html.page import POLICY
from eventd.audit.report.report import to_json
from eventd.text.invisible import UNSEEN
from tests.support.audit_cases import HOSTILE, MADE, hostile
from tests.support.audit_reports import event_id


@cache
def page(name: str) -> str:
    return render(MADE[name]())


@cache
def tree(name: str) -> ElementTree.Element:
    """The page is XML as well: no parser has anything to guess."""
    return ElementTree.fromstring(page(name).removeprefix("<!DOCTYPE html>\n"))


def words(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def section(name: str, anchor: str) -> ElementTree.Element:
    found = [one for one in tree(name).iter("section") if one.get("aria-labelledby") == anchor]
    assert len(found) == 1
    return found[0]


def files(name: str) -> Iterator[tuple[str, bytes]]:
    """The files inside the page."""
    for link in tree(name).iter("a"):
        if link.get("download"):
            yield str(link.get("download")), base64.b64decode(str(link.get("href")).partition(";base64,")[2])


@pytest.mark.parametrize("name", MADE)
def test_the_page_is_well_formed_and_has_one_heading_above_all(name: str) -> None:
    assert page(name).startswith('<!DOCTYPE html>\n<html lang="en">')
    levels = [int(one.tag[1]) for one in tree(name).iter() if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in pairwise(levels))


@pytest.mark.parametrize("name", MADE)
def test_a_forgiving_parser_sees_the_same_elements(name: str) -> None:
    class Elements(HTMLParser):
        seen: list[str]

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.seen.append(tag)

    parser = Elements()
    parser.seen = []
    parser.feed(page(name))
    assert parser.seen == [one.tag.rpartition("}")[2].lower() for one in tree(name).iter()]


@pytest.mark.parametrize("name", MADE)
def test_every_table_has_a_caption_and_headers_for_rows_and_columns(name: str) -> None:
    for table in tree(name).iter("table"):
        assert [words(one) for one in table.iter("caption")] != [""]
        head = table.findall("thead/tr/th")
        assert all(one.get("scope") == "col" and words(one) for one in head)
        for row in table.findall("tbody/tr"):
            first = row[0]
            if row.get("class") != "more":
                assert (first.tag, first.get("scope")) == ("th", "row")
                assert len(row) == len(head)


@pytest.mark.parametrize("name", MADE)
def test_ids_are_unique_and_every_link_leads_somewhere(name: str) -> None:
    ids = [one.get("id") for one in tree(name).iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    for link in tree(name).iter("a"):
        assert (link.get("href") or "").startswith("data:") or (link.get("href") or "#")[1:] in ids
    for one in tree(name).iter("section"):
        assert one.get("aria-labelledby") in ids


@pytest.mark.parametrize("name", MADE)
def test_nothing_is_loaded_and_nothing_runs(name: str) -> None:
    for one in tree(name).iter():
        assert one.tag not in ("script", "link", "iframe", "object", "embed", "img", "form", "base")
        assert not [
            key for key in one.attrib if key.startswith("on") or key in ("src", "srcset", "action", "background")
        ]
    policy = [one.get("content") for one in tree(name).iter("meta") if one.get("http-equiv")]
    assert policy == [POLICY]
    style = "".join(one.text or "" for one in tree(name).iter("style"))
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("name", MADE)
def test_every_drawing_says_in_words_what_it_shows(name: str) -> None:
    for one in tree(name).iter("svg"):
        assert one.get("role") == "img"
        assert len(one.get("aria-label") or "") > 20
        assert not re.search(r"\bnan\b", ElementTree.tostring(one, "unicode").lower())


def test_a_hostile_name_is_shown_and_nothing_else() -> None:
    text = page("hostile names")
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "secret" not in text  # of the lake's address
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x00", "\\x00").replace("\n", "\\n")
    assert words(next(tree("hostile names").iter("h1"))) == shown
    styles = [one.get("style") for one in tree("hostile names").iter() if one.get("style")]
    assert all(re.fullmatch(r"flex:\d+ 1 0", style or "") for style in styles)


def test_the_same_report_is_the_same_page_and_names_the_report_it_shows() -> None:
    report = MADE["three missing"]()
    assert render(report) == render(report)
    assert hashlib.sha256(to_json(report)).hexdigest() in render(report)


def test_the_json_of_a_report_steers_no_terminal_and_means_the_same() -> None:
    text = to_json(hostile()).decode()
    assert not UNSEEN.search(text)
    assert json.loads(text)["made_at"] == HOSTILE
    assert not UNSEEN.search(dict(files("hostile names"))["findings.json"].decode())


@pytest.mark.parametrize("name", MADE)
def test_a_page_can_be_sent_by_mail(name: str) -> None:
    assert len(page(name).encode()) < 2_000_000


def test_the_largest_page_stays_below_two_megabytes() -> None:
    report = MADE["twenty nodes"]()
    found = tuple(
        Finding(Kind.MISSING, "edge", f"site-{n}", "site-1", 1, 4_000, tuple(event_id(i) for i in range(4_000)))
        for n in range(2, 20)
    )
    many = replace(report, findings=found, hours=report.hours * 2, keys=report.keys * 20, gaps=report.gaps * 200)
    assert len(render(many).encode()) < 2_000_000


def test_the_settings_are_named_and_written_like_the_options_of_the_command() -> None:
    report = MADE["three missing"]()
    asked = replace(
        report.settings,
        slo={"": {"warn": 30, "fail": 120}},
        fail_on=("missing", "unproven"),
        since="2026-01-05T00:00:00Z",
        patience=900.0,
        recheck=0.5,
        count_acknowledged=True,
    )
    shown = render(replace(report, settings=asked)).partition("All settings")[2].partition("</details>")[0]
    found = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", shown))
    assert len(found) == len(asked.__struct_fields__)
    assert found["slo"] == "every group: warn 30 s, fail 2 min"
    assert (found["fail on"], found["from"], found["to"]) == ("missing, unproven", "2026-01-05 00:00:00 UTC", "–")
    assert (found["silence"], found["recheck"], found["count acknowledged"]) == ("15 min", "0.5 %", "yes")
    assert not re.search(r"[{}]|true|false|null", shown)  # JSON


def test_the_verdict_comes_first_with_its_figures() -> None:
    title = next(tree("three missing").iter("title")).text or ""
    assert "3 missing" in title
    assert words(next(tree("three missing").iter("h1"))).startswith("9,999,997 of 10,000,000 delivered; 3 missing")


def test_findings_are_named_by_range_and_id() -> None:
    told = words(section("three missing", "findings"))
    assert "amsterdam → cork" in told
    assert "48,211 – 48,212" in told
    assert all(event_id(seq) in told for seq in (48_211, 48_212, 310_077))


def test_the_numbers_of_a_ledger_that_was_rolled_back_are_rows_of_the_ledger() -> None:
    found = section("everything broken", "findings")
    (table,) = (one for one in found.iter("table") if "rolled_back" in (one.get("class") or ""))
    assert [words(one) for one in table.findall("thead/tr/th")] == ["Node", "Ledger rows", "Problem"]
    assert [words(one) for one in table.findall("tbody/tr/*")][:2] == ["east", "70,001 – 71,000"]


def test_the_bar_divides_deliveries_into_claims_and_others() -> None:
    (bar,) = (one for one in tree("callbacks").iter("div") if one.get("class") == "shares")
    assert [(one.get("class"), one.get("style")) for one in bar] == [
        ("fill-good", "flex:10000 1 0"),
        ("fill-claim", "flex:10000 1 0"),
    ]
    heads = [words(one) for one in section("callbacks", "balance").iter("th") if one.get("scope") == "col"]
    assert "Claimed" in heads
    assert "The only evidence" not in page("clean")


def test_the_files_in_the_page_hold_all_findings() -> None:
    saved = dict(files("three missing"))
    report = MADE["three missing"]()
    assert json.loads(saved["findings.json"]) == json.loads(to_json(report))["findings"]
    lines = list(csv.DictReader(io.StringIO(saved["findings.csv"].decode())))
    assert [line["id"] for line in lines] == [id for finding in report.findings for id in finding.ids]


def test_a_file_that_would_be_too_long_says_where_it_is_cut() -> None:
    saved = dict(files("everything broken"))
    assert "findings.json" not in saved
    lines = list(csv.DictReader(io.StringIO(saved["findings.csv"].decode())))
    told = words(section("everything broken", "findings"))
    assert f"is cut after {len(lines):,} lines" in told


def test_a_file_is_not_cut_because_events_are_only_counted() -> None:
    counted = Finding(Kind.ERASED, "edge", "site-01", "", 1, 5_000, ids=(), count=5_000)
    shown = render(replace(MADE["clean"](), findings=(counted,)))
    assert "findings.csv" in shown
    assert "is cut" not in shown


def test_no_cell_of_the_csv_is_a_formula() -> None:
    saved = dict(files("hostile names"))
    for line in csv.reader(io.StringIO(saved["findings.csv"].decode())):
        assert not [cell for cell in line if cell.startswith(("=", "+", "-", "@"))]


def test_every_kind_of_finding_has_a_heading() -> None:
    headings = [words(one) for one in section("everything broken", "findings").iter("h3")]
    assert len(headings) == len(Kind)
    assert headings[0] == "✕ Missing · 55,001 events in 2 findings"


def test_a_cell_of_the_matrix_says_its_state_with_a_sign_and_never_with_colour_alone() -> None:
    signs = {"good": "✓", "bad": "✕", "open": "○", "none": "?"}
    seen = set()
    for cell in section("twenty nodes", "matrix").iter("td"):
        if (state := cell.get("class")) in signs:
            assert words(cell).startswith(signs[state])
            seen.add(state)
    assert seen == set(signs)


def test_what_went_where_nothing_was_to_go_is_in_the_matrix_too() -> None:
    assert "✕ 1 loop" in [words(cell) for cell in section("everything broken", "matrix").iter("td")]


def test_what_is_unproven_never_looks_complete() -> None:
    assert "✓" not in words(section("empty lake", "findings"))
    assert "Nothing is proven" in words(section("empty lake", "doubts"))
    cells = [words(cell) for cell in section("unproven", "matrix").iter("td")]
    assert "? 76.00 unproven" in cells
    assert "1 h 48 min before those of left" in words(section("unproven", "doubts"))
    assert "There was no gap" not in page("unproven")


def test_nothing_is_called_100_percent_whose_ledgers_do_not_reach() -> None:
    assert "100 %" not in words(tree("one node"))
    assert "✓ 100" not in words(tree("one node"))
    assert "? unproven" in [words(cell) for cell in section("one node", "matrix").iter("td")]


def test_a_share_of_all_but_three_of_ten_million_is_not_called_all() -> None:
    assert "99.99997 %" in page("three missing")
    assert "99.9996 %" in words(section("three missing", "balance"))


def test_only_what_a_pair_has_gets_a_column() -> None:
    heads = {
        name: [words(one) for one in section(name, "balance").iter("th") if one.get("scope") == "col"]
        for name in ("clean", "everything broken")
    }
    assert "Missing" not in heads["clean"]
    assert {"Missing", "Disputed", "Unproven", "Pending", "Expired", "Refused", "In path"} <= set(
        heads["everything broken"]
    )


def test_latencies_say_that_the_skew_of_the_clocks_was_subtracted() -> None:
    told = words(section("everything broken", "latency"))
    assert "Corrected for the clocks" in told
    assert "up to 40 s" in told
    assert "up to the acknowledgement" in words(section("one node", "latency"))


def test_long_lists_are_cut_and_say_so() -> None:
    told = words(section("twenty nodes", "latency"))
    assert "The 12 slowest pairs" in told
    assert told.count(" in edge · ") == 20
    assert "50,998 more" in words(section("everything broken", "findings"))


def test_receipts_say_what_they_prove_and_refusals_why() -> None:
    told = words(section("everything broken", "evidence"))
    assert "hmac-sha256 60,300 – – – – ? no both ends share the key" in told
    assert "ed25519 41,022 – – – – ✓ yes" in told
    assert "By reason: bad_signature 44,120, unknown_key 3." in told


def test_the_check_of_receipts_says_how_many_of_them_prove_anything() -> None:
    told = words(section("in Berlin", "evidence"))
    assert "? 60 of 100 receipts verified; the keys of 40 were not given. Keys given: edge/right.2026-11 ." in told
    assert "Of the 9 copies that peers keep of their receipts, 9 were compared" in told
    assert "verified receipts prove 12 of them, and 3 are claims of their senders" in told


def test_the_evidence_says_how_many_nodes_signed_their_files_and_what_a_shared_secret_proves() -> None:
    made = MADE["in Berlin"]()
    made.nodes[0].signed_at = made.nodes[0].as_of
    check = replace(made.receipt_check, shared=60)
    told = render(replace(made, receipt_check=check))
    assert "1 node of 2 signed what they wrote to the lake" in told
    assert "60 receipts verified with a shared secret prove no delivery" in told


def test_the_evidence_of_a_pair_ends_where_its_ledgers_do() -> None:
    told = words(section("in Berlin", "balance"))
    assert "ledger until 2026-11-20 12:54:00 CET then receipts: 12 then claims: 3" in told
    assert "books" not in told


def test_a_finding_shows_the_rows_that_it_rests_on() -> None:
    told = words(section("in Berlin", "findings"))
    parts = (
        f"Evidence of 1 id {event_id(7)} at 2026-11-20 11:12:00 CET, sent by left, batch 01a1f985-batch , receipt",
        "key right.2026-11 , fingerprints 00000000000000aa ≠ 00000000000000bb",
    )
    assert all(part in told for part in parts)


def test_fingerprints_are_unequal_only_if_two_known_ones_are() -> None:
    def shown(*both: str) -> list[tuple[str, str]]:
        return entry_parts(EventEvidence(id="e", fingerprints=both))

    assert shown("aa", "aa") == shown("aa") == [("fingerprint", "aa")]
    assert shown("aa", "") == [("fingerprint known at the source only", "aa")]
    assert shown("", "bb") == [("fingerprint known at the peer only", "bb")]
    assert shown("aa", "bb") == [("fingerprints", "aa ≠ bb")]
    assert shown("", "") == shown() == []


def test_what_an_operator_asked_for_is_a_notice_and_no_finding() -> None:
    assert "left → right in edge repair 2 sent again on request" in words(section("in Berlin", "notices"))
    assert 'id="notices"' not in page("clean")


def test_all_times_are_in_the_time_zone_of_the_report_and_a_limitation_is_in_words() -> None:
    assert "UTC" not in re.sub(r"<style>.*?</style>|href=\"[^\"]*\"", "", page("in Berlin"), flags=re.S)
    assert "complete until 2026-11-20 12:54:00 CET, 18 min before" in page("in Berlin")
    assert "no ledgers far far has no ledgers since 2026-11-21 00:30:00 CET" in words(section("in Berlin", "doubts"))
    assert "Time of the events, Europe/Berlin" in words(section("in Berlin", "timeline"))


def test_declared_losses_are_no_figures_of_the_audit() -> None:
    assert "Nodes declared 1 loss of up to 210 events" in words(section("everything broken", "doubts"))
    assert "declared: retention up to 210" in words(section("everything broken", "timeline"))


def test_a_report_of_one_node_names_the_nodes_without_ledgers() -> None:
    assert "far ships no ledgers" in words(section("one node", "doubts"))


def test_known_findings_have_a_section_and_marks() -> None:
    text = words(section("known findings", "known"))
    assert "✕ 1 new , 2 known, 3 gone: numbers of events in findings." in text
    assert "The earlier report is in s3://***@host/monday ," in text
    assert "Findings that are gone" in text
    assert f"essen → cork missing 7 – 9 {event_id(7)}" in text
    assert "ann 2026-11-20 11:00:00 UTC 2 cork was rebuilt 5e0c2f9a71d3" in text
    marked = [words(one) for one in section("known findings", "findings").iter("td")]
    assert [one.endswith("✕ 1 new 1 acknowledged") for one in marked].count(True) == 1
    assert [one.endswith(f"{event_id(310_077)} acknowledged") for one in marked].count(True) == 1
    assert not [one for one in tree("three missing").iter("section") if one.get("aria-labelledby") == "known"]


def test_the_method_names_the_state_of_the_lake_and_the_key() -> None:
    text = words(section("known findings", "method"))
    assert f"State of the lake {'5' * 64}" in text
    assert "Report signed with sha256//AAAA" in text
    assert "The lake is not signed" in text
    assert "Report signed with no key" in words(section("clean", "method"))
