from __future__ import annotations

import pytest

from eventd.resources.kinds.event_subscription import EventSubscriptionSpec
from eventd.resources.plugin_configuration import SubscriptionConfig, subscriptions
from tests.unit.resources.samples import BACKING, SUBSCRIPTION, accepted, problems, rows, subscription

STORED = rows(BACKING)


def found(text: str) -> list[str]:
    return problems(text, STORED)


def config(text: str) -> SubscriptionConfig:
    return subscriptions([*STORED, *(row for row in rows(f"{BACKING}---\n{text}") if row.name == "claims")])["claims"]


def test_the_smallest_subscription_has_every_default() -> None:
    told = config(SUBSCRIPTION)
    assert (told.name, told.group, told.plugin) == ("claims", "edge", "claim")
    assert told.selector.to_json() == '{"types":["routerd.client.ipv4.observed"]}'
    assert (told.batch_window, told.debounce) == (None, None)
    assert (told.max_attempts, told.backoff.base, told.backoff.cap) == (3, 1.0, 60.0)
    assert (told.clamp_to_events, told.withdraw_on_expired, told.grace) == (False, True, 30_000_000)


def test_what_is_written_takes_effect() -> None:
    more = """\
retry: {maxAttempts: 5, baseBackoff: 2s, maxBackoff: 3s}
lifetime: {clampToEvents: true, withdrawOnExpired: false, grace: 0}
"""
    text = subscription(
        more,
        match="{types: [b, 'a.*'], subjectPrefixes: [x], payload: {k: v, e: ''}, sourceNodes: [n]}",
        trigger="{pluginRef: claim, batchWindow: 5s, debounce: 200ms}",
    )
    told = config(text)
    assert told.selector.types == ("a.*", "b")
    assert told.selector.subject_prefixes == ("x",)
    assert told.selector.payload == (("e", ""), ("k", "v"))
    assert told.selector.sources == ("n",)
    assert (told.batch_window, told.debounce) == (5_000_000, 200_000)
    assert (told.max_attempts, told.backoff.base, told.backoff.cap) == (5, 2.0, 3.0)
    assert (told.clamp_to_events, told.withdraw_on_expired, told.grace) == (True, False, 0)


@pytest.mark.parametrize("window", ["0", "0s", "-5s", ""])
def test_a_wait_of_nothing_and_less_is_not_set(window: str) -> None:
    told = config(subscription(trigger=f"{{pluginRef: claim, batchWindow: {window}, debounce: {window}}}"))
    assert (told.batch_window, told.debounce) == (None, None)


def test_a_blank_text_of_the_payload_is_kept_as_a_condition() -> None:
    text = subscription(match="{types: [a], payload: {k: ''}, subjectPrefixes: []}")
    [resource] = accepted(text, STORED)
    assert resource.canonical()["match"] == {"types": ["a"], "payload": {"k": ""}}


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        ("", "spec.match: is required"),
        ("{}", "spec.match.types: is required"),
        ("{types: []}", "spec.match.types: must name at least one type (write [*] for events of every type)"),
        ("{types: ['']}", "spec.match.types[0]: '' must not be blank"),
        (
            "{types: a}",
            "spec.match.types: must be a list, not 'a' (write [...] around it, or each value on a line, after a dash)",
        ),
        ("{types: [a], subjectPrefixes: [' ']}", "spec.match.subjectPrefixes[0]: ' ' must not be blank"),
        ("{types: [a], sourceNodes: ['']}", "spec.match.sourceNodes[0]: '' must not be blank"),
        ("{types: [a], payload: {' ': a}}", "spec.match.payload: must not contain an empty key"),
        ("{types: [a], payload: {k: 5}}", "spec.match.payload.k: must be text (put it in quotes)"),
        ("{types: [a], payload: {k: }}", "spec.match.payload.k: must be text"),
        ("{types: [a], payload: [k]}", "spec.match.payload: must be a mapping of texts"),
        ("{types: [a], kinds: [b]}", "spec.match.kinds: unknown field"),
    ],
)
def test_what_is_wrong_in_the_match_is_named(match: str, problem: str) -> None:
    [told] = found(subscription(match=match))
    assert told.startswith(f"6: EventSubscription/claims {problem}")


@pytest.mark.parametrize("name", ["*.a", "a*", "a.*.b", "a.**", "**", ".*", "a.*.*", "*."])
def test_a_wildcard_stands_at_the_end_or_alone(name: str) -> None:
    hint = "(a.b.* means every type below a.b)"
    told = f"spec.match.types[0]: may contain * only alone, or at the end after a dot {hint}"
    assert found(subscription(match=f"{{types: ['{name}']}}")) == [f"6: EventSubscription/claims {told}"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("retry: {maxAttempts: 0}", "spec.retry.maxAttempts: must be at least 1"),
        ("retry: {baseBackoff: 2m}", "spec.retry.maxBackoff: must not be less than baseBackoff"),
        ("retry: {baseBackoff: 0s}", "spec.retry.baseBackoff: must be between 1ms and 1h0m0s"),
        ("lifetime: {grace: -1s}", "spec.lifetime.grace: must be between 0s and 168h0m0s"),
        ("lifetime: {clampToEvents: 'true'}", "spec.lifetime.clampToEvents: must be true or false"),
        ("suspend: true", "spec.suspend: unknown field"),
    ],
)
def test_what_is_wrong_beside_the_match_is_named(more: str, problem: str) -> None:
    [told] = found(subscription(more))
    assert told.startswith(f"8: EventSubscription/claims {problem}")


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        ("", "spec.trigger: is required"),
        ("{}", "spec.trigger.pluginRef: is required"),
        ("{pluginRef: ' '}", "spec.trigger.pluginRef: is required"),
        (
            "{pluginRef: claim, batchWindow: 5}",
            "spec.trigger.batchWindow: '5' is not a duration; write 30s, 5m or 168h (a unit is missing: 5s?)",
        ),
        (
            "{pluginRef: claim, debounce: 1w}",
            "spec.trigger.debounce: '1w' is not a duration; write 30s, 5m or 168h (weeks are not a unit; write 7d)",
        ),
    ],
)
def test_what_is_wrong_in_the_trigger_is_named(trigger: str, problem: str) -> None:
    [told] = found(subscription(trigger=trigger))
    assert told.startswith(f"7: EventSubscription/claims {problem}")


def test_two_ways_of_writing_it_mean_the_same() -> None:
    [one] = accepted(subscription("lifetime: {}", trigger="{pluginRef: claim, debounce: -3s}"), STORED)
    [other] = accepted(subscription("retry: {maxBackoff: 60s}"), STORED)
    assert one.means(other)
    assert isinstance(one.spec, EventSubscriptionSpec)
