"""All kinds of damage, by what they concern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.support.campaign.damage import Damage
from tests.support.campaign.damages.absence import ABSENCE
from tests.support.campaign.damages.content import CONTENT
from tests.support.campaign.damages.databases import DATABASES
from tests.support.campaign.damages.receipts import RECEIPTS
from tests.support.campaign.damages.segments import SEGMENTS
from tests.support.campaign.damages.states import STATES

BY_PLACE: Mapping[str, tuple[Damage, ...]] = {
    "Rows removed from the lake": ABSENCE,
    "Rows edited in the lake": CONTENT,
    "Receipts": RECEIPTS,
    "Files of segments": SEGMENTS,
    "States and clocks": STATES,
    "Databases": DATABASES,
}
"""By the heading under which the page on damage lists them."""
DAMAGES: tuple[Damage, ...] = tuple(damage for damages in BY_PLACE.values() for damage in damages)


def one_of_each_kind() -> Iterator[Damage]:
    """Yield damages that show each place, each verdict, and each way in which an audit of the campaign is run.

    As few as possible, because an audit in Spark takes seconds: first the one that shows most.
    """
    shown = {
        damage: {
            place,
            *(damage.kinds or ["complete" if damage.blind else "unproven"]),
            *(("remembers", damage.remembers), ("keys", damage.keys), ("after", damage.audited_after)),
        }
        for place, damages in BY_PLACE.items()
        for damage in damages
    }
    left: set[object] = set().union(*shown.values())
    while left:
        most = max(shown, key=lambda damage: len(shown[damage] & left))
        left -= shown[most]
        yield most
