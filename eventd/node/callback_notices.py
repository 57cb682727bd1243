"""Notices about callbacks: log lines, and records in the topic that the settings name."""

from __future__ import annotations

import json
import logging

from eventd.egress.callbacks.cursor import CallbackChange
from eventd.egress.callbacks.selection import NOTICES
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.log.core.records import write_body
from eventd.log.core.values import Drafts
from eventd.log.topics.write import Write
from eventd.runtime.supervisor import SpawnTask

logger = logging.getLogger("eventd.callbacks")


class CallbackNotices:
    """Logs changes in the condition of callbacks, and writes them to a topic, unless its name is empty.

    Records have the tag `routerd.callback.failing`, `…disabled` or `…recovered`. A callback does not get notices about
    itself.
    """

    def __init__(self, log: EventLog, topic: str, spawn: SpawnTask) -> None:
        self._log = log
        self._topic = topic
        self._spawn = spawn

    def notify(self, callback: str, change: CallbackChange, detail: str) -> None:
        """Log a change; its record is written in the background, because the consumer must not wait for it."""
        about = {"callback": callback, "detail": detail}
        match change:
            case CallbackChange.FAILING:
                logger.warning("callback failing", extra=about)
            case CallbackChange.DISABLED:
                logger.warning("callback disabled", extra=about)
            case CallbackChange.RECOVERED:
                logger.info("callback recovered", extra=about)
        if self._topic:
            self._spawn(self._write(callback, change, detail), f"notice {callback}")

    async def _write(self, callback: str, change: CallbackChange, detail: str) -> None:
        tag = NOTICES + change.value
        data = json.dumps({"callback": callback, "detail": detail}, separators=(",", ":"), ensure_ascii=False)
        body = write_body(None, tag, data, None)
        drafts = Drafts((), [""], [body], frozenset({tag}), frozenset({""}), None, [len(data.encode())])
        unit = Write(self._topic, drafts, flushes=self._log.flushes, create=True, random=self._log.chance.token(5))
        try:
            await self._log.submit(unit)
        except EventdError as error:
            logger.warning(
                "notice not written", extra={"callback": callback, "topic": self._topic, "error": str(error)}
            )
