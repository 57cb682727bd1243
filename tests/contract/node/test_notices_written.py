"""Notices of callbacks are records of the topic that the settings name, which need not exist before."""

from __future__ import annotations

import json
import logging

import pytest

from eventd.egress.callbacks.cursor import CallbackChange
from eventd.log.core.eventlog import EventLog
from eventd.node.callback_notices import CallbackNotices
from eventd.runtime.supervisor import Supervisor
from eventd.store.engine.statements import fetch
from eventd.testing import ManualClock, until
from tests.support.fresh import on_sqlite
from tests.support.topics import Topics


async def records(log: EventLog) -> list[dict[str, object]]:
    texts = await log.database.read(fetch, "SELECT text FROM blocks ORDER BY position")
    return [json.loads(line) for (text,) in texts for line in text.splitlines()]


@on_sqlite
async def test_each_change_is_a_record_and_a_line_of_the_log(
    log: EventLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(clock)
    notices = CallbackNotices(log, "notices", supervisor.spawn)
    with caplog.at_level(logging.INFO, "eventd.callbacks"):
        for number, change in enumerate(CallbackChange, 1):
            notices.notify("hook", change, f"because of ü{number}")

            async def written(count: int = number) -> bool:
                return len(await records(log)) == count

            await until(written, "the record")
    await supervisor.stop()
    assert [(one["$tag"], one["data"]) for one in await records(log)] == [
        ("routerd.callback.failing", {"callback": "hook", "detail": "because of ü1"}),
        ("routerd.callback.disabled", {"callback": "hook", "detail": "because of ü2"}),
        ("routerd.callback.recovered", {"callback": "hook", "detail": "because of ü3"}),
    ]
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("WARNING", "callback failing"),
        ("WARNING", "callback disabled"),
        ("INFO", "callback recovered"),
    ]


@on_sqlite
async def test_a_notice_that_cannot_be_written_is_logged_with_its_topic(
    log: EventLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await Topics(log).make("notices", cap_bytes=1, discard="reject")
    supervisor = Supervisor(clock)
    CallbackNotices(log, "notices", supervisor.spawn).notify("hook", CallbackChange.DISABLED, "the endpoint is gone")
    await until(lambda: "notice not written" in caplog.messages)
    await supervisor.stop()
    (line,) = [vars(one) for one in caplog.records if one.message == "notice not written"]
    assert (line["callback"], line["topic"]) == ("hook", "notices")
    assert await records(log) == []
