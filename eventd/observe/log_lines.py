"""The log lines of a node: a message with fields, as JSON or as text. Never a payload, never a secret."""

from __future__ import annotations

import json
import logging
import traceback
from asyncio import InvalidStateError
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from eventd.errors import EventdError
from eventd.text.invisible import spelled_out
from eventd.tracing import tracing

_WITHHELD = frozenset(
    (
        *("secret", "secrets", "payload", "payloads", "body", "bodies", "signature", "signatures", "authorization"),
        *("password", "passwords", "passphrase", "token", "tokens", "nonce", "nonces", "cookie", "cookies"),
        *("credential", "credentials"),
    )
)
_ABOUT = frozenset(("file", "path", "id", "bytes", "size", "count", "length", "reason"))
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_TELLING = (EventdError, OSError, AttributeError, TypeError, NameError, ImportError, RuntimeError)
"""Errors whose text may be logged. The text of any other may quote a value that caused it, such as a payload."""
_LONGEST = 2000
_FRAMES = 12
MOST_BYTES = 16 << 10
"""Maximum size of a line: collectors of logs divide longer ones, or drop them."""
_FIXED = ("ts", "level", "logger")
_LEAST_CUT = 64
_DIM = "\x1b[2m"
_COLOURS = {"DEBUG": _DIM, "INFO": "\x1b[32m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31;1m"}
_RESET = "\x1b[0m"


def configure_logging(stream: TextIO, *, format: str = "auto", level: str = "info", colour: bool = True) -> None:
    """Send the log lines of this process to `stream`: of `eventd` from `level` on, of libraries from warning on.

    `format` is json, text, or auto (text on a terminal).
    """
    terminal = stream.isatty()
    handler = logging.StreamHandler(stream)
    as_text = format == "text" or (format == "auto" and terminal)
    handler.setFormatter(TextLines(colour=colour and terminal) if as_text else JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)  # output of Python's own loggers and warnings gets the same format
    logging.getLogger("eventd").setLevel(level.upper())
    logging.getLogger("aiohttp.server").addFilter(is_fault_of_node)
    logging.getLogger("aiohttp.access").setLevel(logging.CRITICAL)


def is_fault_of_node(record: logging.LogRecord) -> bool:
    """Return False for lines that aiohttp logs, with an error, although the node did nothing wrong.

    They are about clients that send invalid HTTP or disconnect, and about a request that ends in the same step in which
    a stopping server no longer waits for it: aiohttp then sets the result of a future that it has cancelled.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ConnectionError | InvalidStateError) or type(error).__name__ == "RequestPayloadError":
        return False
    return error is None or type(error).__module__ != "aiohttp.http_exceptions"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a log line: its `extra`, without secrets and payloads, and its error."""
    extra = {name: value for name, value in vars(record).items() if name not in _PLAIN}
    return _cleared(extra) | _failure(record) | _trace()


def _trace() -> dict[str, str]:
    """Return the ids of the current span, if there is one, so that a line is found from a trace and back."""
    context = tracing.current()
    return {} if context is None else {"trace_id": context.trace_id, "span_id": context.span_id}


def _cleared(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _presentable(value) for name, value in values.items() if not _is_withheld(str(name))}


def _is_withheld(name: str) -> bool:
    """Return whether a field name denotes a secret or a payload itself, unlike `secret_file`."""
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).replace("-", "_").split("_")
    return not _WITHHELD.isdisjoint(words) and words[-1] not in _ABOUT


def _presentable(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case Mapping():
            return _cleared(value)
        case list() | tuple() | set() | frozenset():
            return [_presentable(item) for item in value]
        case BaseException():
            return describe_error(value)
        case _:
            return _presentable(str(value))


def describe_error(error: BaseException) -> str:
    """Return the class of an error, and its text if that cannot quote a payload."""
    kind = type(error).__name__
    return f"{kind}: {str(error)[:_LONGEST]}" if isinstance(error, _TELLING) and str(error) else kind


def _failure(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields for the error of a log line: its text, causes and innermost stack frames; empty without one."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return {}
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    causes = [describe_error(cause) for cause in _causes(error)]
    found: dict[str, Any] = {"error": describe_error(error), "trace": frames[-_FRAMES:]}
    return found | ({"causes": causes} if causes else {})


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = {id(error)}
    while (error_before := error.__cause__ or error.__context__) is not None and id(error_before) not in seen:
        yield error_before
        seen.add(id(error_before))
        error = error_before


class JsonLines(logging.Formatter):
    """One JSON object per line: ts (RFC 3339, microseconds), level, logger, msg, and the extra fields.

    An extra field with one of these names gets an underscore at its end.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _instant(record).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        extra = {(f"{name}_" if name in line else name): value for name, value in fields_of(record).items()}
        return _fitted(line | extra)


def _fitted(line: dict[str, Any]) -> str:
    """Return a line as JSON, the longest fields cut until it has at most `MOST_BYTES`."""
    text = _as_json(line)
    while len(text.encode()) > MOST_BYTES:
        name = max(line.keys() - set(_FIXED), key=lambda each: len(_as_json(line[each])))
        line = {**line, name: _shortened(line[name])}
        text = _as_json(line)
    return text


def _shortened(value: Any) -> Any:
    """Return about half of a text or list, with a mark; of another value, or a short one, only the mark."""
    if isinstance(value, str) and len(value) > _LEAST_CUT:
        return f"{value[: len(value) // 2]}…"
    if isinstance(value, list) and len(value) > 2:
        return [*value[: len(value) // 2], "…"]
    return "…"


def _as_json(value: Any) -> str:
    return spelled_out(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


class TextLines(logging.Formatter):
    """Lines for a terminal: time (UTC), level, message, `name=value` per extra field; then one line per stack frame."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        time = _instant(record).strftime("%H:%M:%S.%f")[:-3]
        level = f"{record.levelname:<7}"
        fields = fields_of(record)
        frames = fields.pop("trace", [])
        extra = " ".join(f"{name}={_bare(value)}" for name, value in fields.items())
        if self._colour:
            level = f"{_COLOURS.get(record.levelname, '')}{level}{_RESET}"
            extra = f"{_DIM}{extra}{_RESET}" if extra else ""
        first = f"{time} {level} {_one_line(record.getMessage())}"
        line = _cut(f"{first}  {extra}" if extra else first)
        return "\n".join([line, *(f"    {frame}" for frame in frames)])


def _cut(line: str) -> str:
    """Return a line of text, cut to `MOST_BYTES`."""
    return line if len(line.encode()) <= MOST_BYTES else line.encode()[: MOST_BYTES - 3].decode(errors="ignore") + "…"


def _instant(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _bare(value: Any) -> str:
    """Return a value unquoted if that is unambiguous, otherwise as JSON."""
    if isinstance(value, str) and value.isprintable() and not set(value) & set(' "=') and value:
        return value
    return spelled_out(json.dumps(value, ensure_ascii=False))


def _one_line(text: str) -> str:
    """Escape text from outside so that it cannot start a new line or control the terminal."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
