"""A node that the console of an operator shows: its connection, and what is known of it while it is silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventd.api.keys.api_key import ANYONE, ApiKey
from eventd.api.keys.scopes import SCOPES
from eventd.client.connection import Connection
from eventd.client.refusals.kinds import Lost
from eventd.console.many.answers import check_groups, check_map, of_another_form, showable
from eventd.console.many.attention import AttentionItem, read_attention, read_findings, read_maps
from eventd.console.view.over_http import OverHttpView
from eventd.console.view.sent_answers import SentAnswers
from eventd.errors import EventdError, Forbidden, Unauthorized, Unavailable
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask

logger = logging.getLogger("eventd.console")
SILENCE_SECONDS: Final = 3.0
"""Seconds after which a node that has not answered a question counts as silent."""
KNOWN_SILENT_SECONDS: Final = 0.5
"""As `SILENCE_SECONDS`, for a page of a node that is known to be silent."""
MOST_BYTES: Final = 64 << 20
"""Bytes of the largest answer of a node: a report of an audit has at most half of them."""
ACTION_SECONDS: Final = 30.0
"""Maximum duration in seconds of a request that changes something. It is not cut off sooner, because the node may have
executed it."""
_MAYBE_DONE: Final = "it may have done what was asked: look at it when it answers again"
_ASK_AGAIN_SECONDS: Final = 60.0
"""Seconds after which the permissions of a key are read again. They may be old, because the node checks each request
anyway."""
FRESH_SECONDS: Final = 0.9
"""Seconds after which a summary is requested again when a page shows it."""
ATTENTION_SECONDS: Final = 10.0
"""How often a node is asked what needs attention besides its links, while a page shows it: that may take it longer."""
FINDINGS_SECONDS: Final = 30.0
"""The same for what doctor finds, at least: a node spends a tenth of its time on it at most."""
FINDINGS_REST: Final = 9.0
WANTED_SECONDS: Final = 10.0
"""Seconds for which the map of a group is requested with each summary after a page has shown it."""


class NodeOptions(NamedTuple):
    """How a node is reached and shown. `colour`, `group`: empty without one.

    `problem`: why it cannot be reached at all, such as a key file that is missing; empty if it can.
    """

    name: str
    address: str
    colour: str = ""
    group: str = ""
    protected: bool = False
    problem: str = ""


class NodeSummary(NamedTuple):
    """What a node said when it was asked last. `at`: the monotonic time of the answer, in seconds.

    `maps`: the answers of `map.show` by group.
    """

    at: float
    groups: tuple[Mapping[str, Any], ...] = ()
    maps: Mapping[str, Mapping[str, Any]] = {}


class RemoteNode:
    """A node over its API. It has no `connection` if its options have a problem."""

    def __init__(self, options: NodeOptions, connection: Connection | None, clock: Clock, spawn: SpawnTask) -> None:
        self.options = options
        self.summary: NodeSummary | None = None
        self.problem = options.problem
        """Why the last question had no answer; empty if it had one."""
        self.problem_since: float | None = None
        """The monotonic time since which questions have not been answered."""
        self._connection = connection
        self._clock = clock
        self._spawn = spawn
        self._sent = SentAnswers(clock)
        self._key = ANYONE._replace(scopes=frozenset(SCOPES))
        self._learnt: float | None = None
        self._asking: asyncio.Task[None] | None = None
        self._wanted: dict[str, float] = {}
        self.refusal = ""
        """Why the node has answered the last question for its summary with an error; empty if it has not."""
        self.is_refused = False
        """Whether that error was that it refuses the key; otherwise the address may be that of another program."""
        self.attention: list[AttentionItem] = []
        """What needs attention besides links, as the node said at most `ATTENTION_SECONDS` ago while it answers."""
        self.maps: Mapping[str, Mapping[str, Any]] | None = None
        """The maps of its first groups, as old as `attention`; None if they are not known."""
        self.findings: list[AttentionItem] | None = None
        """What doctor found when it was asked last; None if that is not known."""
        self._examining: asyncio.Task[None] | None = None
        self._examined_until = 0.0
        self._attended: float | None = None
        self._attending: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.options.name

    def view(self, request_id: str) -> OverHttpView:
        """Return the node with the permissions of its key, for a request of the browser with this id."""
        headers = {"X-Request-Id": request_id} if request_id else {}
        return OverHttpView(self.name, self.send, self._decode, self._key, headers, self._sent)

    def _decode(self, content: bytes, model: Any) -> Any:
        connection = self._reach()
        try:
            return msgspec.json.decode(content, type=model)
        except (msgspec.DecodeError, RecursionError):  # a text or a number that only other readers of JSON take
            value = showable(connection.decode(content, Any))
        try:
            return msgspec.convert(value, model)
        except msgspec.ValidationError:
            return connection.decode(content, model)

    def _reach(self) -> Connection:
        if self._connection is None:
            raise Unavailable(self.options.problem, hint="correct the context, and start routerctl console again")
        return self._connection

    async def learn(self) -> None:
        """Read the permissions of the key, unless they are known.

        If the node does not report them, the key is assumed to have all.
        """
        if self.problem or self._is_fresh(self._learnt, _ASK_AGAIN_SECONDS):
            return  # a node that does not answer is asked by the page
        try:
            told = await self.view("").call("callers.show")
            scopes = frozenset(scope for scope in SCOPES if scope in told["scopes"])
            self._key = ApiKey(b"", scopes, tuple(map(str, told["prefixes"])), str(told["name"]))
        except Unavailable:
            return  # the page says it
        except (EventdError, KeyError, TypeError):
            pass  # an older program, or a key that may not even look
        self._learnt = self._clock.monotonic()

    async def send(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], is_file: bool = False
    ) -> bytes:
        """Send a request of a page. Raises the errors of the API, and `Unavailable` if the node does not answer."""
        if method != "GET":
            if self.problem:
                await self._find_again()
            return await self._act(method, target, content, headers)
        if is_file:
            return await self._exchange(method, target, content, headers, ACTION_SECONDS)
        if not self.problem:
            return await self._exchange(method, target, content, headers, SILENCE_SECONDS)
        self.refresh("")  # it waits long enough for a node that is only far away
        return await self._exchange(method, target, content, headers, KNOWN_SILENT_SECONDS)

    async def _act(self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]) -> bytes:
        """Send a request that may take long, and wait for its answer as long as the node answers other requests."""

        async def exchange() -> bytes | EventdError:
            try:
                return await self._exchange(method, target, content, headers, ACTION_SECONDS)
            except EventdError as error:
                return error

        sent = self._spawn(exchange(), f"request to {self.name}")
        try:
            while not (await asyncio.wait({sent}, timeout=SILENCE_SECONDS))[0]:
                if self.problem:
                    raise Unavailable(f"{self.name} does not answer: {self.problem}", hint=_MAYBE_DONE)
                self.refresh("")
            answer = sent.result()
        finally:
            sent.cancel()
        if isinstance(answer, EventdError):
            raise answer
        return answer

    async def _find_again(self) -> None:
        """Raise `Unavailable` if the node is still silent, so that a request that changes something is not sent."""
        self._reach()
        asked = self.refresh("")
        if asked is not None:
            await asyncio.wait({asked}, timeout=SILENCE_SECONDS)
        if self.problem:
            raise Unavailable(f"{self.name} does not answer: {self.problem}", hint="nothing was sent: try again later")

    async def _send_patiently(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], is_file: bool = False
    ) -> bytes:
        """Send a request for which no page waits."""
        return await self._exchange(method, target, content, headers, SILENCE_SECONDS)

    async def _exchange(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> bytes:
        """Send a request, and note whether the node answers."""
        connection, begun = self._reach(), self._clock.monotonic()
        try:
            answer = await connection.send(method, target, content, patience, headers)
        except Lost as error:
            if not self.problem or patience >= SILENCE_SECONDS:
                self._note(error.message, begun)
            raise Unavailable(f"{self.name} does not answer: {self.problem}", hint=error.hint) from None
        except EventdError:
            self._note("")
            raise
        self._note("")
        return answer

    def _note(self, problem: str, begun: float = 0.0) -> None:
        """Note why a request has no answer, and when it was sent; an empty `problem` means that it was answered."""
        if not problem:
            self.problem_since = None
        elif self.problem_since is None:
            self.problem_since = begun
        self.problem = problem

    def _is_fresh(self, at: float | None, most: float) -> bool:
        return at is not None and self._clock.monotonic() - at < most

    # --- the summary --------------------------------------------------------------------------------------------

    def refresh(self, group: str) -> asyncio.Task[None] | None:
        """Ask for the summary, with the map of a group, unless it is fresh.

        Return the question that is under way, if there is one.
        """
        if group:
            self._wanted[group] = self._clock.monotonic()
        if self._asking is not None and not self._asking.done():
            return self._asking
        if self._connection is None or (self.summary is not None and self._has(self.summary, group)):
            return None
        self._asking = self._spawn(self._ask(), f"summary of {self.name}")
        return self._asking

    def _has(self, summary: NodeSummary, group: str) -> bool:
        """Return whether a summary is fresh, with the map of a group unless the node does not have the group."""
        lacks = group not in summary.maps and any(one["group"] == group for one in summary.groups)
        return self._is_fresh(summary.at, FRESH_SECONDS) and not lacks

    async def _ask(self) -> None:
        view = OverHttpView(self.name, self._send_patiently, self._decode, self._key, {}, self._sent)
        try:
            groups = check_groups(await view.call("groups.status"))
            names = [str(group["group"]) for group in groups]
            self._wanted = {name: at for name, at in self._wanted.items() if self._is_fresh(at, WANTED_SECONDS)}
            wanted = [name for name in names if name in self._wanted] or names[:1]
            maps = {name: check_map(await view.call("map.show", group=name)) for name in wanted}
        except EventdError as error:
            self.refusal = "" if self.problem else str(error)
            self.is_refused = isinstance(error, Unauthorized | Forbidden)
            return
        self.refusal = ""
        self.summary = NodeSummary(self._clock.monotonic(), tuple(groups), maps)
        self._attend()

    def _attend(self) -> None:
        """Ask what needs attention besides links, beside the next summary, which must not wait for it."""
        is_due = self._clock.monotonic() >= self._examined_until
        if is_due and (self._examining is None or self._examining.done()):
            self._examining = self._spawn(self._read_findings(), f"doctor of {self.name}")
        if self._is_fresh(self._attended, ATTENTION_SECONDS) or (self._attending and not self._attending.done()):
            return
        self._attended = self._clock.monotonic()
        self._attending = self._spawn(self._read_attention(), f"attention of {self.name}")

    async def _read_attention(self) -> None:
        self.attention = await read_attention(self._aside())
        groups = self.summary.groups if self.summary else ()
        self.maps = await read_maps(self._aside(), [str(group["group"]) for group in groups])

    async def _read_findings(self) -> None:
        begun = self._clock.monotonic()
        self.findings = await read_findings(self._aside())
        ended = self._clock.monotonic()
        self._examined_until = ended + max(FINDINGS_SECONDS, FINDINGS_REST * (ended - begun))

    def _aside(self) -> OverHttpView:
        return OverHttpView(self.name, self._send_aside, self._decode, self._key, {}, self._sent)

    async def _send_aside(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], is_file: bool = False
    ) -> bytes:
        """Send a request that says nothing of whether the node is silent, since it may take long."""
        return await self._reach().send(method, target, content, ACTION_SECONDS, headers)

    def silent_seconds(self) -> float | None:
        """Return how long the node has not answered; None if it has answered the last question."""
        return None if self.problem_since is None else self._clock.monotonic() - self.problem_since

    def age(self) -> float | None:
        """Return the age of the summary in seconds; None without one."""
        return None if self.summary is None else self._clock.monotonic() - self.summary.at

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()


async def ask_all(
    nodes: list[RemoteNode], work: Callable[[RemoteNode], Awaitable[Any]], spawn: SpawnTask, seconds: float
) -> dict[str, Any]:
    """Return what `work` returns for each node, by its name, at the same time; an `EventdError` for one that fails.

    Nodes that do not answer within `seconds` are left out.
    """

    async def one(node: RemoteNode) -> Any:
        try:
            return await work(node)
        except EventdError as error:
            return error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return of_another_form("the question", f"{type(error).__name__} {error}")

    tasks = {node.name: spawn(one(node), f"question to {node.name}") for node in nodes}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=seconds)
    answers = {name: task.result() for name, task in tasks.items() if task.done() and not task.cancelled()}
    for task in tasks.values():
        task.cancel()
    return answers
