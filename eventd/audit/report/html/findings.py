"""What was found, kind by kind, with ids; and the whole list as files inside the page."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence

import msgspec

from eventd.audit.report.figures import counted
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.html.markup import Child, Markup, element, join
from eventd.audit.report.html.tables import Column, identifiers, number, paragraph, section, sign, table, way, wide
from eventd.audit.report.report import Report
from eventd.audit.report.standing import MEANINGS, VERDICTS, noun
from eventd.text.invisible import spelled_out

MOST_FINDINGS = 100
"""Rows a kind's table has."""
MOST_IDS_SHOWN = 4_000
"""Ids the page lists in all, beside those in its files."""
MOST_OCTETS = 250_000
"""Length of each of the two files inside the page."""

_OPENS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def findings(report: Report) -> Markup:
    """The section of the findings."""
    if not report.findings:
        return section(
            "findings",
            "Findings",
            paragraph(sign(VERDICTS[report.verdict], "Nothing was found."), " ", _nothing(report)),
        )
    kinds = [kind for kind in Kind if any(one.kind is kind for one in report.findings)]
    share = MOST_IDS_SHOWN // len(kinds)
    return section(
        "findings",
        "Findings",
        paragraph(
            "Each row is one run of neighbouring events of one source, by their numbers there, both ends included."
        ),
        [_kind(kind, [one for one in report.findings if one.kind is kind], share) for kind in kinds],
        _files(report.findings),
    )


def _nothing(report: Report) -> str:
    if report.verdict == "complete":
        return "No event is missing, doubled, forged or in a loop, and no two books disagree."
    return "That is no proof that nothing is wrong: see below what could not be proven."


def _kind(kind: Kind, found: Sequence[Finding], share: int) -> Markup:
    title, meaning = MEANINGS[kind]
    events = sum(one.events for one in found)
    columns, tell = _TABLES.get(kind, (_PAIR_COLUMNS, _pair_row))
    most = max(3, share // min(len(found), MOST_FINDINGS))
    rows = [tell(one, most) for one in found[:MOST_FINDINGS]]
    rest = (
        paragraph(f"and {len(found) - MOST_FINDINGS:,} more findings in the file below.")
        if found[MOST_FINDINGS:]
        else None
    )
    told = counted(events, noun(kind)) + (f" in {counted(len(found), 'finding')}" if events != len(found) else "")
    return join(
        element("h3", sign("bad", title), element("span", f" · {told}", class_="soft")),
        paragraph(meaning),
        table(title, columns, rows, class_=f"found {kind.value}"),
        rest,
    )


_PAIR_COLUMNS = (Column("From → to"), number("Numbers at the source"), number("Events"), wide("Ids"))


def _pair_row(one: Finding, most: int) -> Sequence[Child]:
    ids = identifiers(one.ids, max(one.events, len(one.ids)), most=most) if one.ids else None
    detail = element("div", one.detail, class_="soft") if one.detail else None
    return (_between(one), _range(one), f"{one.events:,}", (ids, detail))


def _between(one: Finding) -> Child:
    return way(one.source, one.peer), element("div", f"in {one.group}", class_="light") if one.group else None


def _segment_row(one: Finding, most: int) -> Sequence[Child]:
    return (one.source, _range(one), one.detail, identifiers(one.ids, len(one.ids), most=most))


def _epoch_row(one: Finding, most: int) -> Sequence[Child]:
    return (one.source, one.detail)


_TABLES: dict[Kind, tuple[Sequence[Column], Callable[[Finding, int], Sequence[Child]]]] = {
    Kind.CORRUPT: ((Column("Node"), number("Rows"), wide("What"), wide("Segment")), _segment_row),
    Kind.EPOCH: ((Column("Node"), wide("What")), _epoch_row),
}
"""How the kinds are told that are of nodes, not of pairs."""


def _range(one: Finding) -> str:
    if not one.last:
        return "–"
    return f"{one.first:,}" if one.first == one.last else f"{one.first:,} – {one.last:,}"


def _files(found: Sequence[Finding]) -> Markup:
    """Links that save what is inside the page. A file that would be too long is cut, and says so."""
    text, left_out = _as_csv(found)
    whole = spelled_out(msgspec.json.format(msgspec.json.encode(found), indent=1).decode()).encode()
    links = [_link("findings.csv", "text/csv", text.encode("utf-8", "backslashreplace"))]
    if len(whole) <= MOST_OCTETS:
        links.append(_link("findings.json", "application/json", whole))
    cut = (
        f" The first file leaves out {counted(left_out, 'id')}: report.json and the table findings beside it have more."
    )
    return paragraph(
        "Save all of them: ",
        links[0],
        [(" · ", link) for link in links[1:]],
        ".",
        cut if left_out else None,
        class_="download",
    )


def _as_csv(found: Iterable[Finding]) -> tuple[str, int]:
    """One line an id, and how many ids found no room."""
    out, left_out = io.StringIO(), 0
    write = csv.writer(out).writerow
    write(("kind", "group", "source", "peer", "first", "last", "id", "detail"))
    for one in found:
        known = one.ids or ("",)
        room = len(known) if out.tell() < MOST_OCTETS else 0
        for place, one_id in enumerate(known):
            if out.tell() >= MOST_OCTETS:
                room = place
                break
            write(
                [
                    _harmless(c)
                    for c in (
                        one.kind,
                        one.group,
                        one.source,
                        one.peer,
                        str(one.first),
                        str(one.last),
                        one_id,
                        one.detail,
                    )
                ]
            )
        left_out += max(one.events, len(known)) - room
    return out.getvalue(), left_out


def _harmless(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(_OPENS_FORMULA) else cell


def _link(name: str, media: str, content: bytes) -> Markup:
    href = f"data:{media};base64,{b64encode(content).decode()}"
    return element("a", name, href=href, download=name)
