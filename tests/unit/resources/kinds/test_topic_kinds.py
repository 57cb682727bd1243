"""Topic and TopicRouter: the fields and defaults of requests, what is refused and where, and the way back to a spec."""

from __future__ import annotations

import msgspec
import pytest
from pydantic.alias_generators import to_camel

from eventd.egress.routers.projection import Options
from eventd.egress.routers.resource_specs import config_of, router_of_spec, spec_of_config, spec_of_router
from eventd.log.core.topic_config import TopicConfig
from eventd.resources.kinds.registry import TOPIC, TOPIC_ROUTER, find_kind
from eventd.resources.kinds.topic import TopicSpec
from eventd.resources.kinds.topic_router import TopicRouterSpec
from tests.unit.resources.samples import problems

ENDS = {"source": "a", "dest": "b"}


def topic(spec: str, name: str = "orders", kind: str = "Topic") -> str:
    """A resource whose spec is on line 4."""
    return f"apiVersion: topic.routerd.net/v1alpha1\nkind: {kind}\nmetadata: {{name: '{name}'}}\nspec: {spec}\n"


def router(spec: str, name: str = "a->b") -> str:
    return topic(spec, name, "TopicRouter")


@pytest.mark.parametrize("word", ["topic", "topics", "Topic"])
def test_a_topic_has_short_names(word: str) -> None:
    assert find_kind(word) is TOPIC


@pytest.mark.parametrize("word", ["router", "routers", "tr", "topicrouters"])
def test_a_router_has_short_names(word: str) -> None:
    assert find_kind(word) is TOPIC_ROUTER


def test_both_kinds_have_the_fields_and_defaults_of_requests() -> None:
    assert set(TopicSpec.model_fields) == set(TopicConfig.__struct_fields__)
    assert config_of(TopicSpec()) == TopicConfig().resolved()
    options = {field.name for field in msgspec.structs.fields(Options)}
    assert set(TopicRouterSpec.model_fields) == options | {"source", "dest", "create_dest"}
    assert router_of_spec("r", TopicRouterSpec.model_validate(ENDS)).options == Options()


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(),
        TopicConfig(durable=True),
        TopicConfig(type="queue", dead_letter="lost", lease_ms=5000, max_deliveries=3, leases_durable=True),
        TopicConfig(ttl_ms=5, cap_bytes=9, discard="reject", durability="memory", priority=-3, auto_priority=False),
    ],
)
def test_the_spec_of_a_configuration_declares_the_same(config: TopicConfig) -> None:
    spec = TopicSpec.model_validate(spec_of_config(config.resolved()))
    assert config_of(spec) == config.resolved()


def test_the_spec_of_a_router_declares_the_same() -> None:
    given = {
        "source": "a",
        "dest": "group:edge",
        "filter": ["tag", "Glob", "x*"],
        "guarantee": "exactly_once",
        "map": {"type": "t", "payload": {"a": "${data}"}},
    }
    made = router_of_spec("r", TopicRouterSpec.model_validate(given))
    assert spec_of_router(made) == given
    assert router_of_spec("r", TopicRouterSpec.model_validate(spec_of_router(made))) == made


def test_durability_precedes_durable() -> None:
    for given, chosen in (
        ({"durable": True}, "fsync"),
        ({"durable": True, "durability": "memory"}, "memory"),
        ({"durability": "fsync"}, "fsync"),
    ):
        spec = TopicSpec.model_validate(given)
        assert (spec.effective()["durability"], config_of(spec).durability) == (chosen, chosen)
        assert spec.effective()["durable"] is config_of(spec).durable is (chosen == "fsync")


def test_times_are_milliseconds_or_durations() -> None:
    for field in ("ttl_ms", "idempotency_window_ms", "lease_ms", "claim_jitter_ms"):
        for written in (90_000, "90s", "1m30s"):
            assert getattr(TopicSpec.model_validate({to_camel(field): written}), field) == 90_000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (topic("{ttlMs: soon}"), "Topic/orders spec.ttlMs: 'soon' is not a duration"),
        (topic("{ttlMs: 1us}"), "Topic/orders spec.ttlMs: must be a whole number of milliseconds"),
        (topic("{ttlMs: -1}"), "Topic/orders spec.ttlMs: must be"),
        (topic("{capRecords: 1.5}"), "Topic/orders spec.capRecords: must be a whole number"),
        (topic("{type: stack}"), "Topic/orders spec.type: must be log or queue"),
        (topic("{deadLetter: -x}"), "Topic/orders spec.deadLetter: must be 1 to 255 letters, digits or '.', '_', ':'"),
        (topic("{ttl: 5m}"), "Topic/orders spec.ttl: unknown field"),
        (topic("{}", "a b"), "Topic/a b metadata.name: must be 1 to 255 letters, digits or '.', '_', ':', '-'"),
        (topic("{}", "group:edge"), "Topic/group:edge metadata.name: must not be the topic of a group"),
        (topic("{}", "routemaster"), "Topic/routemaster metadata.name: is the topic of the Routemaster surface"),
        (router("{source: a}"), "TopicRouter/a->b spec.dest: is required"),
        (router("{source: a, dest: 'b c'}"), "TopicRouter/a->b spec.dest: must be the name of a topic"),
        (router("{source: a, dest: b, filter: [tag, Eq]}"), "TopicRouter/a->b spec.filter: must be a tag, a tag with"),
        (router("{source: a, dest: group:x}"), "TopicRouter/a->b spec.dest: EventGroup x is not declared"),
    ],
)
def test_what_is_refused_names_its_place(text: str, problem: str) -> None:
    found = problems(text)
    assert any(problem in each for each in found), found
