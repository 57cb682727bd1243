"""The page as a whole: its verdict first, then what was found, then everything it rests on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from eventd.audit.report.figures import NONE, counted, moment, period, span, whole
from eventd.audit.report.html.balance import balance, objectives
from eventd.audit.report.html.evidence import evidence
from eventd.audit.report.html.findings import findings
from eventd.audit.report.html.latency import latencies, overall
from eventd.audit.report.html.markup import Child, Markup, element, join
from eventd.audit.report.html.matrix import matrix
from eventd.audit.report.html.scope import doubts, method, reaches, scope
from eventd.audit.report.html.tables import definitions, paragraph, sign, swatch
from eventd.audit.report.html.timeline import timeline
from eventd.audit.report.report import Report
from eventd.audit.report.standing import SIGNS, VERDICTS, groups, share_of

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may load: nothing. Its own style is all it has."""

_HEADING = re.compile(r'<h2 id="([a-z]+)">([^<]*)</h2>')


def render(report: Report) -> str:
    """The report as one HTML page that needs nothing else. The same report gives the same page."""
    sections = join(
        findings(report),
        doubts(report),
        matrix(report),
        latencies(report),
        timeline(report),
        balance(report),
        objectives(report),
        evidence(report),
        scope(report),
        method(report),
    )
    body = join(
        element("a", "Skip to the findings", href="#findings", class_="skip"),
        element("header", _verdict(report), _shares(report), _tiles(report), _contents(sections)),
        element("main", sections),
        element(
            "footer",
            paragraph(f"Delivery audit, made {moment(report.made_at)} by routerd-eventd {report.work.version}"),
        ),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(report), element('body', body), lang='en')}\n"


def _head(report: Report) -> Markup:
    style = files("eventd.audit.report.html").joinpath("report.css").read_text("utf-8")
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="robots", content="noindex"),
        element("title", f"{SIGNS[VERDICTS[report.verdict]]} Delivery audit: {_first(report)}"),
        element("style", Markup(style)),
    )


def _first(report: Report) -> str:
    return report.headline[0] if report.headline else f"The audit is {report.verdict}."


def _verdict(report: Report) -> Markup:
    state = VERDICTS[report.verdict]
    named = groups(report)
    over = " · ".join(
        filter(
            None,
            (
                "Delivery audit",
                f"{'groups' if len(named) > 1 else 'group'} {', '.join(named)}" if named else "",
                _when(report),
            ),
        )
    )
    failed = f"Failed on what was asked: {', '.join(report.failed)}."
    return join(
        paragraph(over, class_="over"),
        element(
            "div",
            element("span", SIGNS[state], class_="seal", aria_hidden="true"),
            element("h1", _first(report)),
            class_=f"verdict {state}",
        ),
        paragraph(" ".join(report.headline[1:]), class_="lead") if report.headline[1:] else None,
        paragraph(sign("bad", failed)) if report.failed else None,
    )


def _when(report: Report) -> str:
    return f"events of {period(report.period.first, report.period.last)}" if report.period.first else ""


def _shares(report: Report) -> Markup | None:
    """A bar of all that was expected, and its key. The smallest share can still be seen."""
    totals = report.totals
    aside = totals.expired + totals.in_path + totals.dead_lettered
    parts = [
        ("good", totals.delivered, "proven"),
        ("bad", totals.missing, "missing"),
        ("bad", totals.disputed, "disputed"),
        ("none", totals.unproven, "not proven"),
        ("open", totals.pending, "still to come"),
        ("aside", aside, "set aside: expired, refused, or come by way of the peer"),
    ]
    known = [part for part in parts if part[1]]
    if not known:
        return None
    patches = (element("span", "", class_=f"fill-{fill}", style=f"flex:{count} 1 0") for fill, count, _ in known)
    key = (element("li", swatch(fill), element("b", f"{count:,}"), f" {words}") for fill, count, words in known)
    return join(element("div", patches, class_="shares", aria_hidden="true"), element("ul", key, class_="key"))


def _tiles(report: Report) -> Markup:
    totals = report.totals
    until = reaches(report)
    slowest = overall(report)
    known = "of what is due by now" if totals.completeness is not None else "the books do not reach far enough"
    rows: list[tuple[str, Child]] = [
        ("Proven", (share_of(totals, exact=True), _small(known))),
        ("Nodes", (whole(len(report.nodes)), _small(f"{counted(len(report.pairs), 'pair')} of source and peer"))),
        ("Events", (whole(totals.events), _small(f"{whole(totals.expected)} deliveries expected"))),
        ("Findings", (whole(totals.findings), _small(_kinds(report) or "nothing was found"))),
        ("99 % arrived within", (span(slowest.p99), _small(f"half within {span(slowest.p50)}")) if slowest else NONE),
        ("Books complete until", (_day(until), _small(_clock(until)))),
    ]
    return definitions(rows, "tiles")


def _small(words: str) -> Markup:
    return element("small", words)


def _kinds(report: Report) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in report.totals.by_kind.items() if count)


def _day(text: str | None) -> str:
    return moment(text)[:10]


def _clock(text: str | None) -> str:
    return moment(text)[11:] if text else "not known of every node"


def _contents(sections: Markup) -> Markup:
    links: Iterator[Markup] = (
        element("li", element("a", Markup(title), href=f"#{anchor}")) for anchor, title in _HEADING.findall(sections)
    )
    return element("nav", element("ul", links), aria_label="Contents")
