"""Reports defects to the collector of traces: each error that the node logs with its stack is a span of its own."""

from __future__ import annotations

import logging
import traceback
from typing import Final

from eventd.observe.log_lines import describe_error, fields_of
from eventd.runtime.log_pause import LogPause
from eventd.tracing import tracing

FRAMES: Final = 30
_TOLD_OTHERWISE: Final = ("error", "trace_id", "span_id")


class ErrorReports(logging.Handler):
    """Exports errors, each kind (message and class) at most once a minute.

    Neither values of variables nor texts that may quote a payload leave the node.
    """

    def __init__(self, pause: LogPause) -> None:
        super().__init__(logging.ERROR)
        self._pause = pause

    def emit(self, record: logging.LogRecord) -> None:
        """Report the error of a log line, if it has one."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not tracing.on:
            return
        kind = type(error).__qualname__
        if not self._pause.is_over(f"{record.msg} {kind}"):
            return
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
        stack = "\n".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        fields = {name: value for name, value in fields_of(record).items() if isinstance(value, str | int | float)}
        about = {f"eventd.{name}": value for name, value in fields.items() if name not in _TOLD_OTHERWISE}
        tracing.report(kind, describe_error(error), stack, about | {"eventd.message": record.getMessage()})
