"""What some nodes do besides their events: topics with routers, a queue, a subscription with a plugin, a callback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.chaos.load import FAILED
from tests.support.callback_program import LOSE, ReceiverThread
from tests.support.declared import callback
from tests.support.derived import plugin, program, subscription
from tests.support.running import ApiError, NodeProcess

if TYPE_CHECKING:
    from tests.chaos.member import Member

WORK, DERIVED = "t.work", "t.derived"
SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
_PLUGIN = """
time.sleep(0.03)
answer(events=[{"type": "t.derived", "subject": event["id"], "attributes": {"of": event["id"]}} for event in events])
"""
TOPICS: dict[str, dict[str, Any]] = {
    "orders": {"durability": "fsync"},
    "notes": {"durability": "disk"},
    "billed": {"durability": "fsync"},
    "archive": {"durability": "disk"},
    "loud": {"durability": "fsync"},
}
ROUTERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("orders", "billed", {"guarantee": "exactly_once"}),
    ("billed", "archive", {}),
    ("orders", "loud", {"guarantee": "exactly_once", "filter": ["tag", "Eq", "loud"]}),
)
_SOON = {"baseBackoff": "5ms", "maxBackoff": "50ms"}
DELIVERIES = 8
_SECONDS_TO_CREATE = 30.0
_QUEUE = {
    "type": "queue",
    "durability": "fsync",
    "max_deliveries": DELIVERIES,
    "dead_letter": "failed-jobs",
    "leases_durable": True,
}


class Work:
    """The loads of the nodes of one plan."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.receivers: dict[str, ReceiverThread] = {}
        self.spoils = False
        """Whether the receivers of callbacks refuse requests, and lose answers."""

    def program(self, name: str) -> Path:
        """Return the program of the node's plugin."""
        return self._directory / f"{name}-derive"

    def prepare(self, member: Member, chance: Random, stack: ExitStack) -> None:
        """Write the programs of a node, and open its receiver."""
        if "derive" in member.loads:
            program(self._directory, _PLUGIN, name=self.program(member.name).name)
        if "callback" in member.loads:
            receiver = ReceiverThread().start()
            stack.callback(receiver.stop)
            fates = [chance.choice((204, 204, 204, 503, LOSE)) for _ in range(997)]
            receiver.answer = lambda number: fates[number % len(fates)] if self.spoils else 204
            self.receivers[member.name] = receiver
            (self._directory / "callback.key").write_text(SECRET)

    def documents(self, member: Member) -> Iterator[dict[str, Any]]:
        """Yield the resources of a node's loads."""
        if "derive" in member.loads:
            yield plugin(self.program(member.name), name="derive", capabilities=["emit.events"])
            yield subscription(WORK, name="derive", plugin="derive", retry={**_SOON, "maxAttempts": 100})
        if "callback" in member.loads:
            signing = {"keys": [{"id": "k", "secretFile": str(self._directory / "callback.key")}]}
            url = self.receivers[member.name].url
            yield callback("hook", url=url, allowPlain=True, retry=_SOON, signing=signing)

    def create_topics(self, member: Member) -> None:
        """Create what the client of a node writes to."""
        node = member.running
        if {"topics", "watch"} & {*member.loads}:
            for topic, config in TOPICS.items():
                node.request("PUT", f"/v0/topics/{topic}", config)
            for source, dest, options in ROUTERS:
                path = f"/v0/routers/{source}-%3E{dest}"
                node.request("PUT", path, {"source": source, "dest": dest, **options})
        if "queue" in member.loads:
            node.request("PUT", "/v0/topics/jobs", _QUEUE)

    def unrest(self, member: Member) -> Iterator[str]:
        """Yield what the node still has to do."""
        try:
            if "derive" in member.loads:
                (shown,) = member.running.ask("GET", "/subscriptions")["subscriptions"]
                if shown["waitingEvents"] or shown["state"] != "running":
                    yield f"{member.name}: subscription {shown['state']}, {shown['waitingEvents']} events wait"
            if "callback" in member.loads:
                shown = member.running.ask("GET", "/callbacks/hook")
                if shown["waitingEvents"] or shown["state"] != "running":
                    yield f"{member.name}: callback {shown['state']}, {shown['waitingEvents']} events wait"
            if {"topics", "watch"} & {*member.loads}:
                yield from self._routers(member)
        except FAILED as error:
            yield f"{member.name}: {error!r}"

    def _routers(self, member: Member) -> Iterator[str]:
        for source, dest, _ in ROUTERS:
            shown = member.running.request("GET", f"/v0/routers/{source}-%3E{dest}")
            if shown["lag"] or shown["state"] != "running":
                yield f"{member.name}: router {source}->{dest} {shown['state']} {shown['reason']}, lag {shown['lag']}"


def records(node: NodeProcess, topic: str) -> list[dict[str, Any]]:
    """Return all records of a topic, with their tags; none if the topic does not exist."""
    found: list[dict[str, Any]] = []
    at = 0
    while True:
        asked = {"from_seq": at, "limit": 1000, "include_tags": True}
        try:
            page = node.request("POST", f"/v0/topics/{topic}/diff", asked)
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        found += page["records"]
        at = page["next_from_seq"]
        if page["caught_up"]:
            return found


def wait_topics(member: Member, work: Work) -> None:
    """Wait until the node takes the topics of its loads."""
    end = time.monotonic() + _SECONDS_TO_CREATE
    while True:
        try:
            work.create_topics(member)
        except FAILED as error:
            if time.monotonic() > end:
                raise AssertionError(f"{member.name} does not take its topics: {error!r}") from None
            time.sleep(0.1)
        else:
            return
