"""The tables of the page on damage, as the campaign proves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.campaign.damage import Damage
from tests.support.campaign.damages import BY_PLACE, DAMAGES


def found() -> str:
    """Return the tables of the damage that the audit finds, one for each place."""
    return "\n\n".join("\n".join([f"### {place}", "", *_table(damages)]) for place, damages in BY_PLACE.items())


def not_found() -> str:
    """Return the list of the damage that the audit is shown not to find."""
    return "\n".join(f"* {_sentence(damage.does)}" for damage in DAMAGES if damage.blind)


def _table(damages: Sequence[Damage]) -> Iterator[str]:
    yield "| Damage | Verdict | Found by |"
    yield "|---|---|---|"
    for damage in damages:
        if not damage.blind:
            kinds = ", ".join(f"`{kind}`" for kind in damage.kinds or ["unproven"])
            yield f"| {damage.does} | {kinds} | {damage.found_by} |"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
