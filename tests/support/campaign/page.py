"""The tables of the pages on damage and on fields, as the campaign proves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from tests.support.campaign.column_checks import LEDGERS
from tests.support.campaign.damage import Damage
from tests.support.campaign.damages import BY_PLACE, DAMAGES
from tests.support.campaign.damages.trees import OF_FILES, SIGNED
from tests.support.campaign.field_checks import FieldTable
from tests.support.campaign.file_checks import FILES


def found() -> str:
    """Return the tables of the damage that the audit finds, one for each place."""
    return "\n\n".join("\n".join([f"### {place}", "", *_table(damages)]) for place, damages in BY_PLACE.items())


def in_signed_histories() -> str:
    """Return the table of the damage that the audit finds in signed histories."""
    rows = [(one.does, sorted({kind for kind, *_ in one.wanted}), one.found_by) for one in SIGNED]
    rows += [(does, [kind], found_by) for does, kind, found_by in OF_FILES]
    lines = [f"| {does} | {', '.join(f'`{kind}`' for kind in kinds)} | {found_by} |" for does, kinds, found_by in rows]
    return "\n".join(["| Damage | Verdict | Found by |", "|---|---|---|", *lines])


def not_found() -> str:
    """Return the list of the damage that the audit is shown not to find."""
    return "\n".join(f"* {_sentence(damage.does)}" for damage in DAMAGES if damage.blind)


def fields() -> str:
    """Return the tables of the fields and what finds a changed value of each."""
    return "\n\n".join("\n".join([f"## {table.title}", "", *_field_rows(table)]) for table in _field_tables())


def unchecked_fields() -> str:
    """Return the list of the fields of which no changed value is found."""
    lines = [
        f"  - {table.title[0].lower()}{table.title[1:]}: {', '.join(f'`{name}`' for name in table.unchecked)}"
        for table in _field_tables()
        if any(table.unchecked)
    ]
    return ";\n".join(lines) + "."


def _field_tables() -> Iterator[FieldTable]:
    return chain(LEDGERS.values(), FILES.values())


def _field_rows(table: FieldTable) -> Iterator[str]:
    yield "| Field | Verdict | Found by |"
    yield "|---|---|---|"
    for name, check in table.checks.items():
        yield f"| `{name}` | {f'`{check.verdict}`' if check.verdict else 'not found'} | {check.by} |"


def _table(damages: Sequence[Damage]) -> Iterator[str]:
    yield "| Damage | Verdict | Found by |"
    yield "|---|---|---|"
    for damage in damages:
        if not damage.blind:
            kinds = ", ".join(f"`{kind}`" for kind in damage.kinds or ["unproven"])
            yield f"| {damage.does} | {kinds} | {damage.found_by} |"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
