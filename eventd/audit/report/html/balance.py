"""The balance of every pair: what was expected, what became of it, attempts, and whether it kept to its objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventd.audit.report.figures import counted, some, span, whole
from eventd.audit.report.html.markup import Child, Markup, element, join
from eventd.audit.report.html.tables import Column, folded, number, paragraph, section, sign, table, way, wide
from eventd.audit.report.report import Pair, Report, Slo
from eventd.audit.report.standing import State, by_trouble, due, faults, name_of, share_of, stand

AT_ONCE = 25
"""Pairs that are listed at once; the others are folded."""
MOST_PAIRS = 500

_VERDICTS: Mapping[str, tuple[State, str]] = {
    "met": ("good", "met"),
    "missed": ("bad", "missed"),
    "unproven": ("none", "unproven"),
}
_WORDS: Mapping[State, str] = {"good": "proven", "open": "waiting", "none": "unproven"}

_COUNTS = (
    ("Missing", "missing"),
    ("Disputed", "disputed"),
    ("Not proven", "unproven"),
    ("Twice", "duplicates"),
    ("Still to come", "pending"),
    ("Expired", "expired"),
    ("Refused", "dead_lettered"),
    ("In path", "in_path"),
)
"""Columns that are shown where a pair has something in them."""
_ATTEMPTS = (
    Column("From → to"),
    Column("Objective"),
    number("Late"),
    wide("Why"),
    *map(number, ("Attempts p50", "p95", "most")),
    Column("Link"),
    number("Oldest open"),
)


def balance(report: Report) -> Markup | None:
    """The section with the balance of every pair; None where there is none."""
    if not report.pairs:
        return None
    found = faults(report.findings)
    several = len({pair.group for pair in report.pairs}) > 1
    counts = [(name, field) for name, field in _COUNTS if any(getattr(pair, field) for pair in report.pairs)]
    columns = (
        *(Column("From → to"), Column("State"), number("Due"), number("Proven"), number("Share")),
        *(number(name) for name, _ in counts),
        Column("Rests on"),
    )

    def row(pair: Pair) -> Sequence[Child]:
        state, _, wrong = stand(pair, found[name_of(pair)])
        share = share_of(pair, exact=True)
        figures = (whole(due(pair)), whole(pair.delivered), share, *(some(getattr(pair, field)) for _, field in counts))
        return (
            _pair(pair, several),
            sign(state, wrong if state == "bad" else _WORDS[state]),
            *figures,
            pair.proof or "nothing",
        )

    nothing = [name.lower() for name, field in _COUNTS if (name, field) not in counts]
    return section(
        "balance",
        "The balance of every pair",
        paragraph(
            "Due is what should be there by now: all that is meant for the peer, without what expired before it could "
            "be delivered, what the peer refused, what came by way of the peer, and what is still to come.",
            f" No pair has anything to show under {', '.join(nothing)}." if nothing else None,
        ),
        _listed("Balance of each pair", columns, [row(pair) for pair in by_trouble(report)]),
    )


def objectives(report: Report) -> Markup | None:
    """The section with attempts and objectives; None where there is no pair."""
    if not report.pairs:
        return None
    several = len({pair.group for pair in report.pairs}) > 1
    order = {"missed": 0, "unproven": 1, "met": 2}
    pairs = sorted(by_trouble(report), key=lambda pair: (order[pair.slo.verdict], -pair.slo.late))
    verdicts = [pair.slo.verdict for pair in pairs]
    missed, unknown = verdicts.count("missed"), verdicts.count("unproven")
    words = f"{counted(verdicts.count('met'), 'pair')} kept to the objective, {missed:,} missed it"
    return section(
        "objectives",
        "Objectives and attempts",
        paragraph(words, f", and of {unknown:,} it cannot be told." if unknown else "."),
        _bounds(report),
        _listed("Objective and attempts of each pair", _ATTEMPTS, [_attempts_row(pair, several) for pair in pairs]),
    )


def _attempts_row(pair: Pair, several: bool) -> Sequence[Child]:
    gap = pair.oldest_open_gap
    tries = pair.attempts
    return (
        _pair(pair, several),
        _verdict(pair.slo),
        some(pair.slo.late),
        (
            pair.slo.reason,
            [element("div", note, class_="soft") for note in pair.notes] if pair.slo.verdict == "unproven" else None,
        ),
        *map(whole, (tries.p50, tries.p95, tries.max)),
        pair.state or "–",
        span(gap.seconds) if gap else "–",
    )


def _verdict(slo: Slo) -> Markup:
    state, word = _VERDICTS[slo.verdict]
    return sign(state, word)


def _bounds(report: Report) -> Markup | None:
    """The bounds that were used: of each group, or of all that have none of their own."""
    named = sorted(report.settings.slo.items(), key=lambda item: (not item[0], item[0]))
    told = [
        f"{f'group {group}' if group else 'every other group' if len(named) > 1 else 'every group'}: "
        + (", ".join(f"{name} {span(seconds)}" for name, seconds in bounds.items()) or "none")
        for group, bounds in named
    ]
    return paragraph(f"Bounds that were used. {'; '.join(told)}.", class_="note") if told else None


def _pair(pair: Pair, several: bool) -> Child:
    """The pair, its group where there are several, and who sends if it is not the source alone."""
    others = [sender for sender in pair.senders if sender != pair.source]
    group = element("div", f"in {pair.group}", class_="light") if several else None
    by = element("div", f"by way of {', '.join(pair.senders)}", class_="light") if others else None
    return element("span", way(pair.source, pair.peer), class_="pair"), group, by


def _listed(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Child]]) -> Markup:
    """The first rows, which have most to say, and the rest behind a fold."""
    if len(rows) <= AT_ONCE + 5:
        return table(caption, columns, rows)
    first = table(f"{caption}: the {AT_ONCE} with most to say", columns, rows[:AT_ONCE])
    rest = rows[AT_ONCE:]
    others = table(f"{caption}: the others", columns, rest, most=MOST_PAIRS, noun="pair")
    return join(first, folded(f"{len(rest):,} more pairs", others, class_="block"))
