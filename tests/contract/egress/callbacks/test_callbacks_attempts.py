"""The list of a callback's attempts, page by page: every attempt once, also where many have the same time."""

from __future__ import annotations

import pytest

from eventd.api.admin.callbacks.callbacks import read_attempt_page
from eventd.errors import Invalid
from eventd.log.core.eventlog import EventLog
from eventd.resources.apply import apply_loaded
from eventd.resources.reading.documents import load_text
from eventd.store.rows.callback_attempts import CallbackAttempt, add_attempt
from eventd.testing import ManualClock, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import Receiver, Reply
from tests.support.called_back import CalledBack, callback
from tests.support.declared import callback as resource
from tests.support.declared import declare, group

Shown = list[tuple[str, int]]


async def page(called: CalledBack, token: str, limit: int) -> tuple[Shown, str | None]:
    found = await called.log.database.read(read_attempt_page, "hook", None, token, limit)
    return [(one["messageId"], one["status"]) for one in found["attempts"]], found["next"]


async def pages(called: CalledBack, limit: int) -> Shown:
    """All attempts, in pages of `limit`."""
    shown, token = await page(called, "", limit)
    while token is not None:
        more, token = await page(called, token, limit)
        assert len(more) <= limit
        shown += more
    return shown


@pytest.fixture
async def stored(log: EventLog, called: CalledBack) -> CalledBack:
    """A node on which the callback is declared, so that it is found by its name."""
    text = declare(group("a", name="g"), resource("hook", group="g"))
    await log.database.write(apply_loaded, load_text("a.yaml", text), now=log.clock.now())
    return called


@BOTH_DATABASES
async def test_attempts_of_one_moment_are_each_on_one_page(
    stored: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    fates = {"e1": [503, 204], "e2": [503, 429, 204], "e5": [503]}
    receiver.answer = lambda request: Reply(fates[request.id].pop(0) if fates.get(request.id) else 204)
    await stored.declare(callback(receiver.url))
    await stored.emit("e0", "e1", "e2", "e3", "e4", "e5")

    async def delivered() -> bool:
        clock.advance(5)
        return (await stored.cursor()).position == 6

    await until(delivered)
    moment = (await stored.attempts())[0].at
    for number in range(7):
        row = CallbackAttempt(
            cursor="callback:hook",
            message_id=f"m{number}",
            after=0,
            upto=1,
            events=1,
            status=503,
            reason="http_503",
            started_at=moment,
            first_at=moment,
        )
        await stored.log.database.write(add_attempt, row)
    everything, token = await page(stored, "", 100)
    assert token is None
    assert sum(status != 204 for _, status in everything) == 4 + 7
    assert len(everything) == len(set(everything))
    for limit in (1, 2, 3, 5, len(everything)):
        assert await pages(stored, limit) == everything


async def test_a_clock_that_is_set_back_hides_no_attempt(
    stored: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503)
    await stored.declare(callback(receiver.url))
    await stored.emit("e1")
    await stored.pass_failures(3)
    clock.set_wall(clock.now() - 3600 * 1_000_000)
    receiver.always(429)
    await stored.restart()

    async def tried() -> bool:
        clock.advance(60)
        return len(await stored.attempts()) >= 5

    await until(tried)
    await stored.callbacks.stop(1.0)  # and what is under way is stored
    everything, _ = await page(stored, "", 100)
    assert await pages(stored, 1) == everything


@pytest.mark.parametrize("token", ["x", "1", "1:2:3", "1:x", "-1:2", "1" * 19 + ":", "\N{ARABIC-INDIC DIGIT ONE}:"])
async def test_a_token_of_another_list_is_refused(stored: CalledBack, token: str) -> None:
    with pytest.raises(Invalid, match="is not a token of this list"):
        await page(stored, token, 1)
