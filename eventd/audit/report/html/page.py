"""The HTML page: first the verdict, then the findings, then the figures behind them.

Names, subjects and ids come from other nodes. Every value that a template prints, unless it is Markup, is escaped, and
characters that are invisible or change the direction of text are spelled out; the environment below does both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from functools import cache, partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec.structs import asdict

from eventd.audit.report import figures
from eventd.audit.report.figures import NONE, moment, period, span, whole
from eventd.audit.report.html.balance import balance, bounds_of, objectives
from eventd.audit.report.html.evidence import evidence
from eventd.audit.report.html.findings import entry_parts, findings, number_range
from eventd.audit.report.html.known import known
from eventd.audit.report.html.latency import latencies, overall
from eventd.audit.report.html.matrix import matrix
from eventd.audit.report.html.scales import coordinate
from eventd.audit.report.html.scope import doubts, scope
from eventd.audit.report.html.timeline import lasted, timeline
from eventd.audit.report.pair_status import SIGNS, VERDICTS, due, groups, reused_segments, share_of
from eventd.audit.report.report import Report, to_json
from eventd.audit.report.time_zone import in_zone, zone_of
from eventd.lake.address import shown
from eventd.text.invisible import printable
from eventd.text.plural import counted

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy: the page loads nothing, and only its inline style applies."""


def _shown(value: object) -> object:
    """Return the printable text of a value, still to be escaped; a float as a coordinate, Markup as it is."""
    if isinstance(value, Markup):
        return value
    return coordinate(value) if isinstance(value, float) else printable(str(value))


@cache
def templates(zone: tzinfo = UTC) -> Environment:
    """Return the templates, whose filters format times in this time zone."""
    found = Environment(
        loader=PackageLoader("eventd.audit.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (whole, figures.some, counted, span, figures.size, lasted)
    found.filters |= {one.__name__: one for one in formats} | {"range": number_range, "entry_parts": entry_parts}
    timed = (moment, period, in_zone)
    found.filters |= {one.__name__: partial(one, zone=zone) for one in timed}
    found.globals |= {"SIGNS": SIGNS, "due": due, "share_of": share_of, "reused_segments": reused_segments}
    return found


class Section(NamedTuple):
    """A section of the page: its anchor (also the name of its template), its heading, and the template's data."""

    name: str
    title: str
    view: Any


def render(report: Report) -> str:
    """Render the report as one self-contained HTML page. Equal reports give equal pages."""
    return (
        templates(zone_of(report))
        .get_template("page.html")
        .render(
            report=report,
            policy=POLICY,
            state=VERDICTS[report.verdict],
            headline=report.headline or (f"The audit is {report.verdict}.",),
            over=" · ".join(_kicker(report)),
            shares=_shares(report),
            tiles=list(_tiles(report)),
            sections=[Section(name, title, view) for name, title, of in _SECTIONS if (view := of(report)) is not None],
        )
    )


def _kicker(report: Report) -> Iterator[str]:
    yield "Delivery audit"
    if named := groups(report):
        yield f"{'groups' if len(named) > 1 else 'group'} {', '.join(named)}"
    if report.period.first:
        yield f"events of {period(report.period.first, report.period.last, zone_of(report))}"


def _shares(report: Report) -> list[tuple[str, int, str]]:
    """Return the parts of all expected deliveries, without empty ones, each as its fill, number and label."""
    totals = report.totals
    parts = (
        ("good", totals.delivered - totals.claimed, "delivered"),
        ("claim", totals.claimed, "delivered by the sender's claim alone"),
        ("bad", totals.missing, "missing"),
        ("bad", totals.disputed, "disputed"),
        ("none", totals.unproven, "not proven"),
        ("open", totals.pending, "pending"),
        (
            "aside",
            totals.expired + totals.in_path + totals.dead_lettered,
            "not due: expired, refused, or with the peer in their path",
        ),
    )
    return [part for part in parts if part[1]]


def _tiles(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield the figures at the top: term, figure and a note below it."""
    totals, slowest = report.totals, overall(report)
    known = "of the due events" if totals.completeness is not None else "the ledgers do not reach far enough"
    known += f"; {whole(totals.claimed)} by the sender's claim alone" if totals.claimed else ""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in totals.by_kind.items() if count)
    yield "Delivered", share_of(totals, exact=True), known
    yield "Nodes", whole(len(report.nodes)), f"{counted(len(report.pairs), 'pair')} of source and peer"
    yield "Events", whole(totals.events), f"{whole(totals.expected)} deliveries expected"
    yield "Findings", whole(totals.findings), kinds or "none"
    within = (span(slowest.p99), f"half within {span(slowest.p50)}") if slowest else (NONE, "")
    yield "99 % arrived within", *within


def _method(report: Report) -> dict[str, Any]:
    work = report.work
    by = (f"routerd-eventd {work.version}".strip(), f"Spark {work.spark}" if work.spark else report.settings.master)
    return {
        "lake": shown(report.lake.url),
        "made_by": " · ".join(filter(None, by)),
        "digest": sha256(to_json(report)).hexdigest(),
        "settings": list(_settings(report)),
    }


def _settings(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each setting as readers know them: like the options of the command."""
    zone = zone_of(report)
    formats: dict[str, Callable[[Any], str]] = {
        "slo": lambda _: "; ".join(bounds_of(report)),
        "patience": span,
        **dict.fromkeys(("since", "until"), partial(moment, zone=zone)),
        **dict.fromkeys(("recheck", "receipts", "digests", "history"), lambda share: f"{share:g} %"),
    }
    for name, value in asdict(report.settings).items():
        shown_value = formats[name](value) if name in formats else _setting(value)
        yield _OPTIONS.get(name, name.replace("_", " ")), shown_value or NONE


_OPTIONS: Final = {"since": "from", "until": "to", "patience": "silence", "signing_key": "sign", "access": "storage"}
"""The settings that have another name than the option that sets them."""


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


_SECTIONS: Final[tuple[tuple[str, str, Callable[[Report], dict[str, Any] | None]], ...]] = (
    ("findings", "Findings", findings),
    ("known", "Known findings", known),
    ("doubts", "Unproven", doubts),
    ("notices", "Notices", lambda report: {} if report.notices else None),
    ("matrix", "Deliveries by source and peer", matrix),
    ("latency", "Latency", latencies),
    ("timeline", "Gaps and pending events", timeline),
    ("balance", "Deliveries by pair", balance),
    ("objectives", "Objectives and attempts", objectives),
    ("trees", "Signed histories", lambda report: {} if report.trees else None),
    ("evidence", "Evidence", evidence),
    ("scope", "Scope", scope),
    ("method", "Settings and method", _method),
)
"""The sections in the order of the page. A section without data is omitted."""
