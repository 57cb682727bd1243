"""All kinds of damage, by what they concern."""

from __future__ import annotations

from collections.abc import Mapping

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
