"""What the page of a topic says of its configuration, and of the callbacks that read it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from eventd.console.pages.topic_facts import describe_configuration, find_callbacks
from eventd.console.pages.visit import Visit
from eventd.log.core.topic_config import TopicConfig


def described(**config: Any) -> dict[str, str]:
    return dict(describe_configuration(msgspec.to_builtins(TopicConfig(**config).resolved())))


def test_a_configuration_is_described_in_words_and_units() -> None:
    shown = described(ttl_ms=3_600_000, cap_bytes=2_000_000, discard="reject")
    assert (shown["Time to live"], shown["Maximum size"], shown["Maximum records"]) == ("60 min", "2.0 MB", "unlimited")
    assert shown["When it is full"] == "rejects writes"


def test_a_value_that_only_a_newer_node_knows_is_shown_as_it_is() -> None:
    config = msgspec.to_builtins(TopicConfig().resolved()) | {"discard": "largest"}
    assert dict(describe_configuration(config))["When it is full"] == "largest"


def test_only_a_queue_shows_how_its_jobs_are_leased() -> None:
    assert "Lease of a job" not in described()
    shown = described(type="queue", dead_letter="undone")
    assert (shown["Lease of a job"], shown["Topic of dead letters"]) == ("30 s", "undone")


def test_each_member_of_a_configuration_has_a_label() -> None:
    of_all = described(type="queue", priority=1, dead_letter="undone")
    assert len(of_all) == len(msgspec.structs.fields(TopicConfig)) - len(("type", "durable"))


@pytest.mark.parametrize(("may", "names"), [(True, ["hook"]), (False, [])])
async def test_the_callbacks_of_a_topic_are_shown_to_those_who_may_see_them(may: bool, names: list[str]) -> None:
    async def look(operation: str) -> Any:
        rows = [{"callback": "hook", "topic": "orders"}, {"callback": "other", "topic": "audit"}]
        return SimpleNamespace(content={"callbacks": rows})

    view = SimpleNamespace(may=lambda operation: may, sees=lambda name: True)
    visit = cast(Visit, SimpleNamespace(view=view, look=look))
    assert [one["callback"] for one in await find_callbacks(visit, "orders")] == names
