"""The program of a host process, which runs the function of one entry point for a node.

Requests and answers are frames with a length of four bytes in front, over the pipes that were standard input and output
at the start. They are moved to other descriptors first: what the plugin prints goes to standard error and cannot mix
with answers.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import msgspec

from eventd.plugins.author.proposals import ProposalTooLarge, ProposalWriter
from eventd.processes.lifeline import end_with
from federation.event import Event

GROUP: Final = "eventd.plugins"
LENGTH: Final = 4
_SHOWN: Final = 10
"""Maximum number of existing entry points that the message for a missing entry point lists."""
_SELF: Final = os.getpid()
_TELLING: Final = (ImportError, SyntaxError, NameError, AttributeError, SystemExit)
"""Errors whose text is reported, because it is about the program; the text of any other error may quote a secret
value."""


class _Context(msgspec.Struct):
    resources: list[dict[str, Any]] = []


class _Spec(msgspec.Struct):
    events: list[Event] = []
    context: _Context = msgspec.field(default_factory=_Context)


class _Request(msgspec.Struct):
    spec: _Spec


class Failed(Exception):
    """The plugin cannot be loaded; `reason` is a slug for the node."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Function:
    """The plugin's function: for one event or all, with or without context, plain, asynchronous or a generator."""

    def __init__(self, call: Any) -> None:
        if not callable(call):
            raise Failed("cannot_import", f"is {type(call).__name__}, but must be a function")
        self._call = call
        first, self._context = _parameters(call)
        self._each = first == "event"
        self._run: Callable[[Any], Any] | None = None

    def __call__(self, events: list[Event], context: list[dict[str, Any]]) -> bytes:
        """Call the function, once with all events or for each event, and return the resulting `status` as JSON."""
        gathered = ProposalWriter(latest=self._each)
        placed = (context,) if self._context == "placed" else ()
        named = {"context": context} if self._context == "named" else {}
        if self._each:
            for event in events:
                self._gather(gathered, self._call(event, *placed, **named), event.subject)
        else:
            self._gather(gathered, self._call(events, *placed, **named), "")
        return gathered.status()

    def _gather(self, gathered: ProposalWriter, value: Any, subject: str) -> None:
        if inspect.isawaitable(value):
            value = self._until_complete(value)
        if hasattr(value, "__aiter__"):
            self._until_complete(_drain(gathered, value, subject))
        else:
            gathered.add(value, subject)

    def _until_complete(self, awaitable: Any) -> Any:
        """Run the awaitable on the one loop of this process, so that connections of the plugin stay usable."""
        if self._run is None:
            import asyncio  # importing asyncio takes a third of the start, and most plugins do not need it

            self._run = asyncio.Runner().run
        return self._run(_awaited(awaitable))


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


async def _drain(gathered: ProposalWriter, values: Any, subject: str) -> None:
    async for value in values:
        gathered.add(value, subject)


def _parameters(call: Any) -> tuple[str, str]:
    """Return the name of the first positional parameter, and how the context is passed.

    The latter is `named`, `placed`, or empty if it is not passed. Raises Failed for a signature without such a
    parameter, or that cannot be called with the events, or with the events and the context.
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        raise Failed("cannot_import", "has no signature that can be read") from None
    parameters = list(signature.parameters.values())
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    context = ""
    if any(p.name == "context" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters[1:]):
        context = "named"
    # A second parameter with a default is left to the function.
    elif len(placed) > 1 and (placed[1].default is inspect.Parameter.empty or placed[1].name == "context"):
        context = "placed"
    try:
        signature.bind(*[None] * (1 + (context == "placed")), **({"context": None} if context == "named" else {}))
        return placed[0].name, context
    except (TypeError, IndexError):
        what = "must take one parameter, the events, or two, the events and the context"
        raise Failed("cannot_import", what) from None


def load(name: str) -> Function:
    """Load the function of an entry point. Raises Failed."""
    found = find(name)
    if not found:
        raise Failed(
            "no_entry_point", f"no installed package has the entry point {name} in the group {GROUP}{_others()}"
        )
    if len(found) > 1:
        values = ", ".join(sorted(entry.value for entry in found))
        raise Failed("no_entry_point", f"several installed packages have the entry point {name}: {values}")
    try:
        return Function(found[0].load())
    except Failed as failed:
        raise Failed(failed.reason, f"the entry point {name} = {found[0].value} {failed.message}") from None
    except BaseException as error:  # any fault while importing is the plugin's
        if isinstance(error, SystemExit | KeyboardInterrupt):
            traceback.print_exc()
        else:
            _print_error(error)
        what = f"{type(error).__name__}: {error}" if isinstance(error, _TELLING) else type(error).__name__
        raise Failed("cannot_import", f"{found[0].value} cannot be imported: {what}"[:400]) from None


def _others() -> str:
    """Return the end of a message, which lists some existing entry points; empty if no entry points exist."""
    from importlib.metadata import entry_points

    names = sorted({entry.name for entry in entry_points(group=GROUP)})
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f", only {', '.join(names[:_SHOWN])}{more}" if names else ""


def find(name: str) -> Sequence[Any]:
    """Return the installed entry points of this name, one for each distinct `module:function`; none are loaded."""
    from importlib.metadata import entry_points

    return list({entry.value: entry for entry in entry_points(group=GROUP, name=name)}.values())


def answer(function: Function, raw: bytes) -> bytes:
    """Return the answer to one request as JSON: `{"status": …}`, or `{"failed": {reason, message}}` after an error."""
    request = msgspec.json.decode(raw, type=_Request)
    try:
        return b'{"status":' + function(request.spec.events, request.spec.context.resources) + b"}"
    except ProposalTooLarge:
        return _failed("stdout_too_large", "the plugin proposes more than 4 MiB in one run")
    except BaseException as error:  # SystemExit would wait for the plugin's threads
        _print_error(error)
        return _failed("raised", f"the plugin raised {type(error).__name__}")


def _failed(reason: str, message: str) -> bytes:
    return msgspec.json.encode({"failed": {"reason": reason, "message": message}})


def _print_error(error: BaseException) -> None:
    """Print the traceback to standard error, without the leading frames of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__ and frames.tb_next is not None:
        frames = frames.tb_next
    _flush((sys.stdout,))  # earlier output first
    traceback.print_exception(error.with_traceback(frames))


# --- the pipes ----------------------------------------------------------------------------------------------------


def _read_frames(fd: int) -> Iterator[bytes]:
    """Yield every request until the node closes its end."""
    with open(fd, "rb", closefd=False) as stream:
        while len(head := stream.read(LENGTH)) == LENGTH:
            yield stream.read(int.from_bytes(head))


def _write_frame(fd: int, body: bytes) -> None:
    if os.getpid() != _SELF:
        os._exit(0)  # the plugin has forked, and this is the copy: one request has one answer
    _flush((sys.stdout, sys.stderr))  # output before the answer it belongs to
    left = memoryview(len(body).to_bytes(LENGTH) + body)
    while left:
        left = left[os.write(fd, left) :]


def _flush(streams: Iterable[Any]) -> None:
    for stream in streams:
        with contextlib.suppress(Exception):  # the plugin may have closed or replaced it
            stream.flush()


def _put_pipes_aside() -> tuple[int, int]:
    """Move the pipes of requests and answers to descriptors that children do not inherit, and return these.

    Afterwards standard input is empty, and what is written to standard output goes to standard error.
    """
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def main(name: str, lifeline: int) -> NoReturn:
    """Load the entry point `name` and report the outcome; if loaded, answer requests until their pipe ends; exit.

    `lifeline` is a pipe whose other end the node holds and never writes to; -1 if a guard ends this process.
    """
    requests, answers = _put_pipes_aside()
    if lifeline >= 0:
        end_with(lifeline)
    try:
        function = load(name)
    except Failed as failed:
        _write_frame(answers, _failed(failed.reason, failed.message))
    else:
        _write_frame(answers, b"{}")
        for raw in _read_frames(requests):
            _write_frame(answers, answer(function, raw))
    os._exit(0)  # regardless of threads that the plugin started
