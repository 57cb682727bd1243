"""Audit reports built by hand, each of which shows one case that the page and the terminal must present well."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from eventd.audit.report.findings import NOT_HELD, EventEvidence, Finding, Kind
from eventd.audit.report.marks import AcknowledgementUse, Baseline
from eventd.audit.report.report import (
    Attempts,
    KeyUse,
    Lake,
    Latencies,
    Latency,
    Limitation,
    LostSpan,
    Notice,
    OpenGap,
    Period,
    ReceiptCheck,
    Receipts,
    RefusedByReason,
    Report,
    Settings,
    Skew,
    Slo,
    Work,
)
from tests.support.audit_reports import WITNESSED, at, event_id, mesh, pair, report

HOSTILE = "<script>alert(1)</script>\"'&\u202egnp.exe\x00\n${{x}}]]>[/b]"
"""A node name that contains markup and terminal control characters."""

SIGNED = Receipts(
    algorithm="hmac-sha256",
    count=60_300,
    proves_to_others=False,
    note="both ends share the key: proves the delivery to the two of them only",
)
UNSIGNED = Receipts(
    algorithm="", count=1_200, proves_to_others=False, note="not signed: only the answer's status code is known"
)


SITES = ("amsterdam", "berlin", "cork", "dakar", "essen")


def clean() -> Report:
    """Return a report of five nodes without any finding."""
    return report(SITES, mesh(SITES, 500_000))


def three_missing() -> Report:
    """Return a report with three of ten million deliveries missing, and no other finding."""
    pairs = mesh(SITES, 500_000)
    findings = []
    for number, (place, first, last) in enumerate([(1, 48_211, 48_212), (13, 310_077, 310_077)]):
        one, lost = pairs[place], last - first + 1
        one.missing, one.delivered = lost, one.expected - lost
        one.completeness = 100 * one.delivered / one.expected
        one.oldest_open_gap = OpenGap(since=at(4.2 + number / 3), seconds=6480.0)
        one.slo = Slo(verdict="missed", reason=f"{lost} never arrived", late=lost)
        ids = tuple(event_id(seq) for seq in range(first, last + 1))
        findings.append(Finding(Kind.MISSING, one.group, one.source, one.peer, first, last, ids))
    gaps = tuple(
        LostSpan(
            kind="missing",
            group=f.group,
            source=f.source,
            peer=f.peer,
            since=at(4.2),
            until=at(4.21 + n / 3),
            events=len(f.ids),
        )
        for n, f in enumerate(findings)
    )
    words = (
        "9,999,997 of 10,000,000 delivered; 3 missing: 2 from amsterdam to cork, 1 from dakar to berlin.",
        "Nothing is pending, and the ledgers of all 5 nodes reach beyond the period.",
    )
    totals = {"by_kind": {"missing": 3}, "findings": 2}
    made = report(
        SITES, pairs, verdict="incomplete", headline=words, findings=tuple(findings), gaps=gaps, failed=("missing",)
    )
    return replace(made, totals=replace(made.totals, **totals), receipts=(SIGNED, WITNESSED))


def twenty_nodes(count: int = 20) -> Report:
    """Return a report of a mesh of twenty nodes, with a few pairs in every state."""
    names = [f"site-{number}" for number in range(1, count + 1)]
    pairs = mesh(names, 40_000)
    findings = []
    for place, one in enumerate(pairs):
        if place % 97 == 5:
            one.missing, one.delivered, one.completeness = 12, one.expected - 12, 99.97
            ids = tuple(event_id(seq) for seq in range(900, 912))
            findings.append(Finding(Kind.MISSING, one.group, one.source, one.peer, 900, 911, ids))
        elif place % 61 == 7:
            one.unproven, one.delivered, one.completeness = one.expected, 0, None
            one.slo, one.proof = Slo(verdict="unproven", reason="the peer's ledgers end at 04:00"), ""
            one.notes = ("the ledgers of the peer end at 2026-11-20 04:00:00 UTC",)
            one.latencies = Latencies()
        elif place % 53 == 11:
            one.pending, one.delivered, one.expected = 1_811, one.expected - 1_811, one.expected
            one.lag, one.state = 4_402.0, "backing-off"
            one.oldest_open_gap = OpenGap(since=at(4.8), seconds=4402.0)
            one.slo = Slo(verdict="missed", reason="1,811 took longer than 3m0s", late=1_811)
    gaps = tuple(
        LostSpan(kind="missing", group=f.group, source=f.source, peer=f.peer, since=at(4.2), until=at(4.6), events=12)
        for f in findings
    )
    words = ("15,000,000 deliveries are due; 48 are missing and 280,000 cannot be proven.",)
    made = report(names, pairs, verdict="incomplete", headline=words, findings=tuple(findings), gaps=gaps)
    return replace(
        made,
        totals=replace(made.totals, findings=len(findings), by_kind={"missing": len(findings)}),
        hours_left_out=12_000,
    )


TREE = "abcdefghijklmnop"


def everything_broken() -> Report:
    """Return a report with one finding and one problem of every kind, and long lists of ids."""
    names = ["east", "north", "south", "west"]
    pairs = mesh(names, 120_000, seed=11)
    findings = [
        Finding(Kind.MISSING, "edge", "east", "west", 17, 4_016, tuple(event_id(seq) for seq in range(17, 4_017))),
        Finding(
            Kind.MISSING,
            "edge",
            "east",
            "west",
            9_000,
            60_000,
            tuple(event_id(s) for s in range(9_000, 19_000)),
            "",
            51_001,
        ),
        Finding(Kind.ERASED, "edge", "north", "", 11, 13, (), "no segment holds these seqs"),
        Finding(
            Kind.ALTERED,
            "edge",
            "west",
            "south",
            21,
            21,
            (event_id(21),),
            "the peer's row has another subject than its source's",
            evidence=(
                EventEvidence(
                    id=event_id(21), sender="west", batch="01a1f985-batch", fingerprints=("0f" * 8, "1e" * 8)
                ),
            ),
        ),
        Finding(Kind.REWRITTEN, "edge", "east", "", 256, 511, (f"{TREE}/256-511",), "other rows than it signed"),
        Finding(Kind.FORK, "edge", "east", "", 0, 299, (f"{TREE}/0-299",), "two roots of size 300"),
        Finding(Kind.DUPLICATE, "edge", "north", "south", 5, 9, tuple(event_id(seq) for seq in range(5, 10))),
        Finding(
            Kind.FORGED,
            "edge",
            "south",
            "west",
            0,
            0,
            (event_id(1), event_id(2)),
            "the peer's ledgers contain it; those of its source do not",
        ),
        Finding(
            Kind.FORGED,
            "edge",
            "west",
            "east",
            0,
            0,
            ("01a1f985-batch",),
            "the sender holds a receipt of a batch that is not in the peer's ledger",
        ),
        Finding(Kind.SQUATTED, "edge", "east", "", 12, 12, (event_id(12),), "west refused the event of east"),
        Finding(Kind.LOOP, "edge", "north", "north", 31, 31, (event_id(31),), "delivered to its own source"),
        Finding(Kind.DISAGREEMENT, "edge", "west", "north", 44, 45, (event_id(44), event_id(45)), NOT_HELD),
        Finding(
            Kind.CORRUPT,
            "",
            "south",
            "",
            80_001,
            90_000,
            ("south-1f3a-4f1d0c7a92be-00000000000000080000-00000000000000090000",),
            "its digest is not that of the manifest",
        ),
        Finding(Kind.ROLLED_BACK, "", "east", "", 70_001, 71_000, (), "an earlier audit saw these rows of events"),
        Finding(Kind.UNSEALED, "edge", "east", "", 900, 904, (f"{TREE}/900-904",), "no checkpoint", 5),
        Finding(Kind.LAKE_REWRITTEN, "", "east", "", 0, 0, ("nodes/east-1/e.json",), "its state was changed"),
        Finding(Kind.EPOCH, "", "west", "", 0, 0, (), "from 4f1d0c7a92be to 99aa12bc0e5f at 2026-11-20 09:11:00 UTC"),
    ]
    by_name = {(p.source, p.peer): p for p in pairs}
    lost = by_name["east", "west"]
    lost.missing, lost.delivered, lost.completeness = 55_001, lost.expected - 55_001, 54.16
    lost.slo = Slo(verdict="missed", reason="55,001 never arrived", late=55_001)
    lost.oldest_open_gap, lost.state = OpenGap(since=at(0.1), seconds=21_000.0), "blocked"
    lost.attempts = Attempts(p50=3, p95=41, max=812)
    for other in ("east", "north", "west"):
        unknown = by_name["south", other]
        unknown.unproven, unknown.delivered, unknown.completeness = 10_000, unknown.expected - 10_000, None
        unknown.slo = Slo(verdict="unproven", reason="a segment of the sender cannot be trusted")
        unknown.notes = ("10,000 events of the source lie in a segment that cannot be trusted",)
    by_name["west", "north"].disputed, by_name["west", "north"].delivered = 2, 119_998
    away = by_name["north", "west"]
    away.expired, away.dead_lettered, away.in_path, away.pending = 40, 7, 1_000, 900
    away.delivered -= 1_947
    away.lag, away.state, away.slo = (
        8_000.0,
        "paused",
        Slo(verdict="missed", reason="900 took longer than 3m0s", late=900),
    )
    away.skew = Skew(ms=40_012.0, error_ms=3.1, moved_ms=900.0)
    away.proof, away.claimed = "claims", away.delivered
    words = (
        "304,999 of 360,000 delivered; 55,001 missing: all from east to west.",
        "30,000 more cannot be judged: a segment of south cannot be trusted.",
        "Ledgers disagree about 2, 3 have no origin, 1 went in a loop, 5 were delivered twice.",
    )
    made = report(
        names,
        pairs,
        verdict="incomplete",
        headline=words,
        findings=tuple(findings),
        failed=("missing", "completeness<99.99"),
    )
    kinds = {finding.kind.value: 0 for finding in findings}
    for finding in findings:
        kinds[finding.kind.value] += 1
    return replace(
        made,
        totals=replace(made.totals, findings=len(findings), by_kind=kinds),
        gaps=(
            LostSpan(
                kind="missing", group="edge", source="east", peer="west", since=at(0.1), until=at(1.4), events=4_000
            ),
            LostSpan(
                kind="missing", group="edge", source="east", peer="west", since=at(2.2), until=at(5.5), events=51_001
            ),
            LostSpan(
                kind="declared",
                group="edge",
                source="north",
                peer="west",
                since=at(3.0),
                until=at(3.6),
                events=210,
                reason="retention",
            ),
        ),
        refusals=(
            RefusedByReason(
                node="west",
                group="edge",
                peer="east",
                reason="bad_signature",
                count=44_120,
                first=at(0.1),
                last=at(5.4),
            ),
            RefusedByReason(
                node="west", group="edge", peer="?", reason="unknown_key", count=3, first=at(2), last=at(2.1)
            ),
        ),
        receipts=(SIGNED, WITNESSED, UNSIGNED),
        troubles=(
            Limitation(
                kind="corrupt",
                where="south-1f3a",
                message="the file's digest is not that of its manifest",
                hint="ship it again",
            ),
            Limitation(
                kind="two_epochs",
                where="west",
                message="the log began a new history",
                hint="see docs/operations/backup.md",
            ),
        ),
    )


def empty() -> Report:
    """Return a report of a lake without segments."""
    nothing = Lake(url="./eventd-data/lake", segments=0, rows=0, bytes=0, schema=1)
    words = ("There is nothing in this lake to judge.",)
    return report(
        (), (), verdict="unproven", headline=words, lake=nothing, period=Period(), keys=(), receipts=(), work=Work()
    )


def one_node() -> Report:
    """Return a report on the ledger of one side only: deliveries rest on receipts, and nothing is known to be
    complete."""
    one = pair(random.Random(3), "alone", "far", 12_345)
    one.proof, one.latencies, one.completeness = (
        "receipts",
        replace(one.latencies, peer_recorded=Latency(), whole=Latency()),
        None,
    )
    one.notes = ("the ledgers of far are not in this lake",)
    words = (
        "12,345 of 12,345 delivered.",
        "Some pairs are unproven: their ledgers do not reach far enough.",
    )
    made = report(("alone",), [one], verdict="unproven", headline=words)
    return replace(made, totals=replace(made.totals, completeness=None), receipts=(SIGNED,))


def callbacks() -> Report:
    """Return a report of two nodes without any finding, one of which has a callback that gets the events of both."""
    pairs = mesh(("left", "right"), 5_000)
    for source in ("left", "right"):
        one = pair(random.Random(9), source, "left/callback:hook", 5_000)
        one.receiver, one.proof, one.senders, one.skew = "callback", "claims", ("left",), None
        one.claimed = one.delivered
        one.latencies = replace(one.latencies, peer_recorded=Latency(), whole=Latency())
        pairs.append(one)
    answers = Receipts(algorithm="callback", count=10_000, proves_to_others=False, note="the endpoint signs no receipt")
    words = ("20,000 of 20,000 delivered, 10,000 of them by the sender's claim alone.", "All ledgers agree.")
    return replace(report(("left", "right"), pairs, headline=words), receipts=(WITNESSED, answers))


def unproven() -> Report:
    """Return a report without findings whose ledgers do not suffice to prove that nothing is missing."""
    pairs = mesh(("left", "right"), 5_000)
    pairs[0].unproven, pairs[0].delivered, pairs[0].completeness = 1_200, 3_800, None
    pairs[0].notes = ("the ledgers of right end at 2026-11-20 10:12:00 UTC, 1 h 48 min before those of left",)
    pairs[0].slo = Slo(verdict="unproven", reason="1,200 events cannot be judged")
    words = ("8,800 of 10,000 delivered; 1,200 cannot be judged, and nothing is known to be missing.",)
    trouble = Limitation(
        kind="behind", where="right", message="its ledgers end at 10:12:00", hint="look at routerctl lake status there"
    )
    return report(("left", "right"), pairs, verdict="unproven", headline=words, troubles=(trouble,))


def hostile() -> Report:
    """Return a report with hostile text in every field that another node, or a file, can fill."""
    bad = HOSTILE
    one = pair(random.Random(5), bad, bad + "2", 10, group=bad)
    one.missing, one.delivered, one.completeness, one.senders, one.state = 1, 9, 90.0, (bad,), bad
    one.notes, one.proof, one.slo = (bad,), bad, Slo(verdict="missed", reason=bad, late=1)
    made = report((bad, bad + "2"), [one], verdict="incomplete", headline=(bad, bad), failed=(bad,))
    return replace(
        made,
        made_at=bad,
        lake=Lake(url=f"s3://key:secret@host/{bad}?token=secret", segments=1, rows=1, bytes=1, schema=1),
        period=Period(first=bad, last=bad),
        settings=Settings(slo={bad: {bad: 1}}, fail_on=(bad,), since=bad, until=bad, master=bad),
        findings=(
            Finding(Kind.MISSING, bad, bad, bad + "2", 1, 1, (bad, "=HYPERLINK(1)"), bad),
            Finding(Kind.EPOCH, "", bad, "", 0, 0, (), bad),
        ),
        hours=tuple(replace(hour, type=bad, hour=bad if n else hour.hour) for n, hour in enumerate(made.hours)),
        nodes=tuple(
            replace(n, epochs=(bad,), as_of=bad, complete_until=bad, rows={bad: 1}, states={bad: bad})
            for n in made.nodes
        ),
        gaps=(LostSpan(kind="declared", group=bad, source=bad, peer=bad, since=bad, until=bad, events=1, reason=bad),),
        keys=(KeyUse(node=bad, group=bad, key_id=bad, protocol=bad, requests=1, first=bad, last=bad),),
        refusals=(RefusedByReason(node=bad, group=bad, peer=bad, reason=bad, count=1, first=bad, last=bad),),
        receipts=(Receipts(algorithm=bad, count=1, proves_to_others=False, note=bad),),
        baseline=Baseline(url=bad, sha256=bad, made_at=bad, lake_state=bad, new=1, known=1, gone=1),
        acknowledgements=(AcknowledgementUse(id=bad, by=bad, reason=bad, at=bad, ids=1),),
        troubles=(Limitation(kind=bad, where=bad, message=bad, hint=bad),),
        work=Work(stages={bad: 1.0}, spark=bad, version=bad),
    )


def known_findings() -> Report:
    """Return the report of `three_missing` compared with an earlier one, and with an acknowledged finding."""
    made = three_missing()
    first, second = made.findings
    gone = Finding(Kind.MISSING, "edge", "essen", "cork", 7, 9, tuple(event_id(seq) for seq in range(7, 10)))
    return replace(
        made,
        findings=(
            replace(first, new=1, new_ids=first.ids[1:], acknowledged=1, acknowledged_ids=first.ids[:1]),
            replace(second, new=0, acknowledged=1),
        ),
        totals=replace(made.totals, acknowledged=2),
        lake=replace(made.lake, id="4d1e", state="5" * 64),
        settings=replace(made.settings, baseline="/srv/audit/monday", signing_key="sha256//AAAA"),
        baseline=Baseline(
            url="s3://key:secret@host/monday",
            sha256="ab" * 32,
            made_at=at(-24),
            lake_state="6" * 64,
            new=1,
            known=2,
            gone=3,
            gone_findings=(gone,),
        ),
        acknowledgements=(AcknowledgementUse(id="5e0c2f9a71d3", by="ann", reason="cork was rebuilt", at=at(5), ids=2),),
    )


def in_berlin() -> Report:
    """Return a report with times in Berlin, an altered event with its evidence, receipts, a notice, and late claims."""
    pairs = mesh(("left", "right"), 5_000)
    pairs[0].proven_until, pairs[0].receipts_after, pairs[0].claims_after, pairs[0].claimed = at(5.9), 12, 3, 3
    proof = EventEvidence(
        id=event_id(7),
        sender="left",
        at=at(4.2),
        batch="01a1f985-batch",
        receipt_digest="ab" * 32,
        key_id="right.2026-11",
        fingerprints=("00000000000000aa", "00000000000000bb"),
    )
    changed = Finding(Kind.ALTERED, "edge", "left", "right", 7, 7, (event_id(7),), "other bytes", evidence=(proof,))
    words = (
        "10,000 of 10,000 delivered, 3 of them by the sender's claim alone; 1 finding: 1 altered.",
        "The ledgers of all nodes are complete until 2026-11-20 11:54:00 UTC, 18 min before this report.",
    )
    made = report(("left", "right"), pairs, verdict="incomplete", headline=words, findings=(changed,))
    trouble = Limitation(
        kind="no books", where="far", message="far has no ledgers since 2026-11-20 23:30:00 UTC", hint=""
    )
    check = ReceiptCheck(
        percent=100.0, keys=("edge/right.2026-11",), count=100, checked=100, verified=60, unverifiable=40, copies=9,
        copies_checked=9, statement="60 of 100 receipts verified; the keys of 40 were not given.",
    )  # fmt: skip
    again = Notice(kind="repair", group="edge", source="left", peer="right", events=2, message="sent again on request")
    return replace(
        made,
        proven_until=at(5.9),
        settings=replace(made.settings, time_zone="Europe/Berlin"),
        troubles=(trouble,),
        receipt_check=check,
        notices=(again,),
    )


MADE: dict[str, Callable[[], Report]] = {
    "clean": clean,
    "three missing": three_missing,
    "twenty nodes": twenty_nodes,
    "everything broken": everything_broken,
    "empty lake": empty,
    "one node": one_node,
    "callbacks": callbacks,
    "unproven": unproven,
    "known findings": known_findings,
    "hostile names": hostile,
    "in Berlin": in_berlin,
}
"""The functions that build the reports, by name."""
