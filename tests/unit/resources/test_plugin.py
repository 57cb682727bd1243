from __future__ import annotations

import pytest

from eventd.resources.plugin_configuration import PluginConfig, PolicyRule, plugins, policies
from eventd.resources.validation.resource import ResourceRef
from tests.unit.resources.samples import PLUGIN, accepted, problems, rows

ROUTE = ResourceRef("net.routerd.net/v1alpha1", "IPv4Route", "fallback")
TARGET = "{apiVersion: net.routerd.net/v1alpha1, kind: IPv4Route, name: fallback}"


def plugin(more: str = "", runs: str = "executable: /usr/libexec/claim") -> str:
    """A Plugin; `more` are lines of its spec, written from column 1. They begin on line 6."""
    lines = [runs, *more.splitlines()]
    return PLUGIN.partition("  executable")[0] + "".join(f"  {line}\n" for line in lines)


def source(spec: str) -> str:
    """A DynamicConfigSource; its spec stands on line 4."""
    head = "apiVersion: plugin.routerd.net/v1alpha1\nkind: DynamicConfigSource\nmetadata: {name: s}\n"
    return f"{head}spec: {spec}\n"


def policy(*rules: str, name: str = "p") -> str:
    """A DynamicOverridePolicy; its rules begin on line 6."""
    head = "apiVersion: config.routerd.net/v1alpha1\nkind: DynamicOverridePolicy\n"
    return f"{head}metadata: {{name: {name}}}\nspec:\n  allow:\n" + "".join(f"  - {rule}\n" for rule in rules)


def test_the_smallest_plugin_has_every_default() -> None:
    assert plugins(rows(PLUGIN)) == {
        "claim": PluginConfig(
            name="claim",
            executable="/usr/libexec/claim",
            entry_point="",
            timeout=10_000_000,
            concurrency=4,
            ttl=600_000_000,
            env=(),
            capabilities=frozenset(),
            context=(),
        )
    }


def test_what_is_written_takes_effect() -> None:
    more = f"""\
timeout: 1500ms
concurrency: 64
ttl: 1h
env: {{B: '', A: x, ' ': lost, 'C=D': lost}}
capabilities: [propose.dynamicConfig, emit.events, emit.events]
triggers: [{{type: event}}, {{type: interval, every: 5m}}]
context: {{resources: [{TARGET}]}}
"""
    told = plugins(rows(plugin(more, runs="entryPoint: claim.v2")))["claim"]
    assert (told.executable, told.entry_point) == ("", "claim.v2")
    assert (told.timeout, told.concurrency, told.ttl) == (1_500_000, 64, 3_600_000_000)
    assert told.env == (("A", "x"), ("B", ""))
    assert told.capabilities == {"propose.dynamicConfig", "emit.events"}
    assert told.context == (ROUTE,)


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ("timeout: 1s", "4: Plugin/claim spec.executable: is required, or entryPoint instead of it"),
        ("executable: bin/claim", "5: Plugin/claim spec.executable: must be an absolute path to a program"),
        ("executable: /usr/libexec/", "5: Plugin/claim spec.executable: must be an absolute path to a program"),
        ("executable: [/usr/bin/claim, -v]", "5: Plugin/claim spec.executable: must be text"),
        ("entryPoint: claim:main", "5: Plugin/claim spec.entryPoint: must be 1 to 127 letters"),
    ],
)
def test_a_plugin_is_run_in_one_way(runs: str, problem: str) -> None:
    [told] = problems(plugin(runs=runs))
    assert told.startswith(problem)


def test_blank_counts_as_absent() -> None:
    assert problems(plugin("entryPoint: ''")) == []
    assert problems(plugin("entryPoint: claim", runs="executable: ' '")) == []
    assert problems(plugin("entryPoint: ' '", runs="executable: ''")) == [
        "5: Plugin/claim spec.executable: is required, or entryPoint instead of it"
    ]


def test_fields_that_contradict_each_other_are_both_named() -> None:
    assert problems(plugin("entryPoint: claim")) == [
        "6: Plugin/claim spec.entryPoint: executable and entryPoint exclude each other (leave one of them out)"
    ]
    assert problems(plugin("ttl: 5m")) == [
        "6: Plugin/claim spec.ttl: is only for entryPoint, and executable is given "
        "(an executable sets the ttl in each result)"
    ]
    assert problems(plugin("triggers: [{type: event, every: 5m}, {type: interval, topic: a, every: 1s}]")) == [
        "6: Plugin/claim spec.triggers[0].every: is only for type interval, and type is event",
        "6: Plugin/claim spec.triggers[1].topic: is only for type event, and type is interval",
    ]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("timeout: 0", "spec.timeout: must be longer than 0s"),
        ("timeout: -5s", "spec.timeout: must be longer than 0s"),
        ("concurrency: 0", "spec.concurrency: must be at least 1"),
        ("concurrency: 65", "spec.concurrency: must be at most 64"),
        ("env: {A: 5}", "spec.env.A: must be text (put it in quotes)"),
        ("env: {A: }", "spec.env.A: must be text"),
        ("env: [A=b]", "spec.env: must be a mapping of texts"),
        ("env: {SECRET_KEY: 5}", "spec.env.SECRET_KEY: must be text"),
        ("triggers: [{type: cron}]", "spec.triggers[0].type: must be interval or event"),
        ("triggers: [{type: interval}]", "spec.triggers[0].every: is required for a trigger whose type is interval"),
        ("triggers: [{type: interval, every: 0s}]", "spec.triggers[0].every: must be longer than 0s"),
        ("context: {resources: [{kind: A, name: b}]}", "spec.context.resources[0].apiVersion: is required"),
        (
            "context: {resources: [{apiVersion: a/b, kind: ' ', name: b}]}",
            "spec.context.resources[0].kind: is required",
        ),
        ("args: [-v]", "spec.args: unknown field"),
    ],
)
def test_what_is_wrong_is_named(more: str, problem: str) -> None:
    [told] = problems(plugin(more))
    assert told.startswith(f"6: Plugin/claim {problem}")


def test_an_unknown_capability_is_told_the_known_ones() -> None:
    [told] = problems(plugin("capabilities: [propose.dynamicConfig, emit.event]"))
    assert told.startswith("6: Plugin/claim spec.capabilities[1]: must be observe.cloud, observe.providerPrivateIPs, ")
    assert told.endswith("(did you mean emit.events?)")


def test_what_is_stored_of_an_environment_is_what_was_written() -> None:
    [resource] = accepted(plugin("env: {A: '', B: x}\ncapabilities: []"))
    assert resource.canonical() == {"executable": "/usr/libexec/claim", "env": {"A": "", "B": "x"}}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{ttl: 5m}", "spec.pluginRef: is required"),
        ("{pluginRef: claim}", "spec.ttl: is required"),
        ("{pluginRef: claim, ttl: 0}", "spec.ttl: must be longer than 0s"),
        (
            "{pluginRef: claim, ttl: 5m, mergePolicy: {conflict: last}}",
            "spec.mergePolicy.conflict: must be blank or reject",
        ),
        ("{pluginRef: claim, ttl: 5m, triggers: [{type: interval}]}", "spec.triggers[0].every: is required"),
    ],
)
def test_what_is_wrong_with_a_source_is_named(spec: str, problem: str) -> None:
    [told] = problems(source(spec), rows(PLUGIN))
    assert told.startswith(f"4: DynamicConfigSource/s {problem}")


def test_a_source_may_say_what_it_means_in_two_ways() -> None:
    [one] = accepted(source("{pluginRef: claim, ttl: 300s, mergePolicy: {conflict: ''}}"), rows(PLUGIN))
    [other] = accepted(source("{pluginRef: claim, ttl: 5m}"), rows(PLUGIN))
    assert one.means(other)


def test_every_rule_of_every_policy_counts() -> None:
    rule = f"{{source: EventSubscription/claims, operations: [mask], targets: [{TARGET}]}}"
    stored = rows(f"{policy(rule, name='b')}---\n{policy('{source: Plugin/claim}', rule, name='a')}")
    mask = PolicyRule("EventSubscription/claims", frozenset({"mask"}), frozenset({ROUTE}))
    assert policies(stored) == (PolicyRule("Plugin/claim", frozenset(), frozenset()), mask, mask)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("{operations: [mask]}", "spec.allow[0].source: is required"),
        ("{source: ' '}", "spec.allow[0].source: is required"),
        (
            "{source: EventSubscription/claims/*}",
            "spec.allow[0].source: is compared as a whole, so * would match nothing "
            "(an owner such as EventSubscription/NAME stands for all of its parts)",
        ),
        ("{source: a, operations: [delete]}", "spec.allow[0].operations[0]: must be mask"),
        ("{source: a, targets: [{apiVersion: a/b, kind: C}]}", "spec.allow[0].targets[0].name: is required"),
    ],
)
def test_what_is_wrong_with_a_policy_is_named(rule: str, problem: str) -> None:
    [told] = problems(policy(rule))
    assert told.startswith(f"6: DynamicOverridePolicy/p {problem}")


def test_a_part_is_not_declared() -> None:
    text = "apiVersion: config.routerd.net/v1alpha1\nkind: DynamicConfigPart\nmetadata: {name: a}\nspec: {}\n"
    assert problems(text) == [
        "2: DynamicConfigPart/a kind: a DynamicConfigPart cannot be declared "
        "(parts are created at run time by plugins; list them with routerctl dynamic list)"
    ]
