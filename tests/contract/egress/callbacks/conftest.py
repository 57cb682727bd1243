"""A receiver, and callbacks over the log."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.testing import ManualClock
from tests.support.callback_receivers import Receiver
from tests.support.called_back import CalledBack


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = await Receiver().start()
    yield made
    await made.stop()


@pytest.fixture
async def called(log: EventLog, clock: ManualClock) -> AsyncIterator[CalledBack]:
    made = CalledBack(log, clock)
    yield made
    await made.close()
