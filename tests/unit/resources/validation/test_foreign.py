"""Resources of other programs' kinds."""

from __future__ import annotations

import json

import pytest

from eventd.errors import NotFound
from eventd.resources.apply import plan, plan_delete
from eventd.resources.group_configuration import effective
from eventd.resources.kinds.registry import KINDS
from eventd.resources.plugin_configuration import startup, subscriptions
from eventd.resources.reading.documents import load_text
from eventd.resources.reading.yaml_text import write_yaml
from eventd.resources.validation.check import check
from eventd.resources.validation.foreign import meant_kinds
from eventd.resources.validation.resource import from_stored, identity_of
from eventd.store.rows.registry import StoredResource
from tests.unit.resources.samples import EVERYTHING, FEDERATION, GROUP, accepted, problems, row, rows

NET = "net.routerd.net/v1alpha1"


def foreign(
    spec: str = "{gateway: 10.0.0.1}", *, name: str = "fallback", version: str = NET, kind: str = "Route"
) -> str:
    """A resource of another program's kind; its spec stands on line 4."""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_it_is_kept_as_it_is_written() -> None:
    text = foreign("{b: null, a: [], list: [{}, '', null, 1.5], no: no, deep: {deeper: {'x y': 10}}}")
    [resource] = accepted(
        text.replace("name: fallback", "name: fallback, annotations: {k: v}") + "status: {up: true}\n"
    )
    assert resource.document() == {
        "apiVersion": NET,
        "kind": "Route",
        "metadata": {"name": "fallback", "annotations": {"k": "v"}},
        "spec": {
            "b": None,
            "a": [],
            "list": [{}, "", None, 1.5],
            "no": "no",
            "deep": {"deeper": {"x y": 10}},
        },
    }
    assert list(resource.canonical()) == ["b", "a", "list", "no", "deep"]
    assert resource.effective() == resource.canonical()
    assert from_stored(row(resource)) == resource
    assert accepted(write_yaml(resource.document())) == (resource,)
    assert accepted(json.dumps(resource.document())) == (resource,)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("{a: 1, b: {c: 2, d: 3}}", "{b: {d: 3, c: 2}, a: 1}", True),
        ("{a: [1, 2]}", "{a: [2, 1]}", False),
        ("{a: 1}", "{a: true}", False),
        ("{a: 1}", "{a: 1.0}", False),
        ("{a: 1}", "{a: '1'}", False),
        ("{a: null}", "{}", False),
    ],
)
def test_what_means_the_same_is_unchanged(one: str, other: str, same: bool) -> None:
    [change] = plan(accepted(foreign(one)), rows(foreign(other))).changes
    assert (change.action == "unchanged") is same
    assert bool(change.diff()) is not same


@pytest.mark.parametrize("name", ["a/b", "10.0.0.0/8", "x y", "ü", "_a", "'-'", "x" * 512])
def test_its_name_is_free(name: str) -> None:
    assert problems(foreign(name=name)) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("''", "is required"),
        ("'  '", "is required"),
        ("5", "must be text (put it in quotes)"),
        ("x" * 513, "is longer than 512 characters"),
        ('"a\\nb"', "must not contain line breaks or other unprintable characters"),
    ],
)
def test_a_name_can_be_shown_and_kept(name: str, message: str) -> None:
    [told] = problems(foreign(name=name))
    assert told.startswith("3: Route")
    assert told.endswith(f" metadata.name: {message}")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "spec: is required (write {} for an empty spec)"),
        ("[a]", "spec: must be a mapping of fields"),
        ("text", "spec: must be a mapping of fields"),
        ("{a: [1, .nan]}", "spec.a[1]: must be a finite number"),
        ("{a: {b: -.inf}}", "spec.a.b: must be a finite number"),
        ("{a: 1e999}", "spec.a: must be a finite number"),
        ("{a: 18446744073709551616}", "spec.a: is a whole number that does not fit 64 bits"),
        ("{a: -9223372036854775809}", "spec.a: is a whole number that does not fit 64 bits"),
        (f"{{a: {'x' * 1048576}}}", "spec: is longer than 1 MiB"),
    ],
)
def test_a_spec_is_what_every_reader_takes_for_the_same(spec: str, problem: str) -> None:
    assert problems(foreign(spec)) == [f"4: Route/fallback {problem}"]


def test_a_spec_may_be_empty_and_hold_the_largest_numbers() -> None:
    assert problems(foreign("{}")) == []
    assert problems(foreign("{a: 18446744073709551615, b: -9223372036854775808, c: 1.0e300}")) == []


def test_u0000_and_what_is_too_deep_are_refused() -> None:
    assert problems(foreign('{"a\\0": b}')) == ["4:8: text must not contain the character U+0000"]
    assert problems(foreign('{a: "\\0"}')) == ["4:11: text must not contain the character U+0000"]
    [told] = problems(foreign("{a: " + "[" * 70 + "]" * 70 + "}"))
    assert told.endswith("is nested more than 64 levels deep")


@pytest.mark.parametrize(
    ("version", "kind", "problem"),
    [
        (FEDERATION, "Gadget", "2: Gadget/fallback kind: unknown kind Gadget (known kinds: "),
        ("plugin.routerd.net/v9", "Gadget", "2: Gadget/fallback kind: unknown kind Gadget (known kinds: "),
        ("Config.routerd.net/v9", "Gadget", "2: Gadget/fallback kind: unknown kind Gadget (known kinds: "),
        ("x.example/v1", "Plugin", "1: Plugin/fallback apiVersion: Plugin is not known in x.example/v1"),
        ("x.example/v1", "plugin", "2: plugin/fallback kind: unknown kind plugin (did you mean Plugin?)"),
        ("federatoin.routerd.net/v1", "EventGrop", "2: EventGrop/fallback kind: unknown kind EventGrop (did you"),
        ("v1", "Route", "1: Route/fallback apiVersion: is not a group and version such as net.example/v1"),
        ("a/b/c", "Route", "1: Route/fallback apiVersion: is not a group and version such as net.example/v1"),
        ("'a /b'", "Route", "1: Route/fallback apiVersion: is not a group and version such as net.example/v1"),
    ],
)
def test_what_seems_to_mean_one_of_our_kinds_is_not_kept_as_another(version: str, kind: str, problem: str) -> None:
    told, *_ = problems(foreign(version=version, kind=kind))
    assert told.startswith(problem)


def test_our_rules_for_the_rest_of_a_resource_hold() -> None:
    text = foreign(name="a, namespace: b, annotations: {k: 5}") + "data: {}\n"
    assert problems(text) == [
        "3: Route/a metadata.annotations.k: must be text (put it in quotes)",
        "3: Route/a metadata.namespace: unknown field (metadata has a name, annotations and labels)",
        "5: Route/a data: unknown field (a resource has apiVersion, kind, metadata, spec, status)",
    ]


def router(*resources: str) -> str:
    members = "".join(f"  - {text.rstrip().replace(chr(10), chr(10) + '    ')}\n" for text in resources)
    return f"apiVersion: routerd.net/v1alpha1\nkind: Router\nmetadata: {{name: r}}\nspec:\n  resources:\n{members}"


def test_a_router_may_hold_ours_and_theirs() -> None:
    text = router(*EVERYTHING.split("---\n"), foreign(), foreign(version="x.example/v1"))
    assert [str(resource.identity) for resource in accepted(text)] == [
        "EventGroup/edge",
        "EventPeer/cloud",
        "Route/fallback",
        "Route/fallback",
    ]


def test_what_is_missing_is_found_beside_them_and_what_is_twice_too() -> None:
    peer = EVERYTHING.split("---\n")[1]
    found = problems(f"{foreign()}---\n{peer}---\n{foreign()}")
    assert [told.partition(" (")[0] for told in found] == [
        "10: EventPeer/cloud spec.groupRef: EventGroup edge is not declared",
        "16: Route/fallback metadata.name: Route/fallback is declared twice, first at a.yaml:1",
    ]


def stored_pair() -> list[StoredResource]:
    return rows(f"{GROUP}---\n{foreign()}---\n{foreign(version='x.example/v1')}---\n{foreign(name='a')}")


def test_two_of_one_name_are_two() -> None:
    stored = stored_pair()
    kept = check(load_text("a.yaml", foreign(version="x.example/v1")), stored).accepted()
    changes = plan(kept, stored, prune=True).changes
    assert [(change.identity.api_version, change.name, str(change.action)) for change in changes] == [
        ("x.example/v1", "fallback", "unchanged"),
        (NET, "a", "deleted"),
        (NET, "fallback", "deleted"),
        (FEDERATION, "edge", "deleted"),
    ]
    [change] = plan_delete([identity_of(stored[2])], stored).changes
    assert change.identity == ("x.example/v1", "Route", "fallback")
    with pytest.raises(NotFound, match=r"^Route/fallbac does not exist$"):
        plan_delete([identity_of(stored[2])._replace(api_version="y.example/v1", name="fallbac")], stored)


def test_a_node_does_not_run_on_them_and_the_configuration_begins_with_them() -> None:
    stored = stored_pair()
    assert list(effective(stored)) == ["edge"]
    assert subscriptions(stored) == {}
    assert [(row.kind, row.name, row.api_version) for row in startup(reversed(stored))] == [
        ("EventGroup", "edge", FEDERATION),
        ("Route", "a", NET),
        ("Route", "fallback", NET),
        ("Route", "fallback", "x.example/v1"),
    ]


@pytest.mark.parametrize(
    ("word", "versions"),
    [
        ("Route", [NET, "x.example/v1"]),
        ("route", [NET, "x.example/v1"]),
        ("Route.x.example", ["x.example/v1"]),
        ("route.v1alpha1.net.routerd.net", [NET]),
        ("EventGroup", [FEDERATION]),
        ("eg", [FEDERATION]),
    ],
)
def test_a_kind_is_meant_by_its_name_or_by_all_of_it(word: str, versions: list[str]) -> None:
    assert [version for version, _ in meant_kinds(word, stored_pair())] == versions


def test_a_kind_that_is_not_there_is_told_what_may_have_been_meant() -> None:
    with pytest.raises(NotFound) as refused:
        meant_kinds("Rout", stored_pair())
    assert str(refused.value) == "unknown kind Rout (did you mean Route?)"
    with pytest.raises(NotFound) as refused:
        meant_kinds("Gadget", rows(GROUP))
    assert str(refused.value) == f"unknown kind Gadget (known kinds: {', '.join(KINDS)})"


def test_an_unknown_kind_is_answered_with_the_kinds_of_other_programs_too() -> None:
    with pytest.raises(NotFound) as refused:
        meant_kinds("Gadget", stored_pair())
    assert refused.value.hint == f"known kinds: {', '.join(KINDS)}; of other programs: Route"
