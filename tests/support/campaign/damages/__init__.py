"""All kinds of damage, by what they concern."""

from __future__ import annotations

from tests.support.campaign.damage import Damage
from tests.support.campaign.damages.absence import ABSENCE
from tests.support.campaign.damages.content import CONTENT
from tests.support.campaign.damages.databases import DATABASES
from tests.support.campaign.damages.receipts import RECEIPTS
from tests.support.campaign.damages.segments import SEGMENTS
from tests.support.campaign.damages.states import STATES

DAMAGES: tuple[Damage, ...] = (*ABSENCE, *CONTENT, *RECEIPTS, *SEGMENTS, *STATES, *DATABASES)
