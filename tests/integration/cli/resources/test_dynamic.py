"""`routerctl dynamic` on a database and on an API: the parts of plugins, and how they are changed and removed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from eventd.dynamic.part import form_part
from eventd.plugins.contract.contract import Result
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.parts.parts import put_part
from eventd.testing import event
from tests.integration.cli.conftest import Control, everywhere
from tests.unit.dynamic.samples import HOUR, mask, route

FALLBACK = """
apiVersion: net.routerd.net/v1alpha1
kind: IPv4Route
metadata: {name: fallback}
spec: {destination: 0.0.0.0/0}
"""
POLICY = """
---
apiVersion: config.routerd.net/v1alpha1
kind: DynamicOverridePolicy
metadata: {name: allow}
spec:
  allow:
    - source: EventSubscription/claims
      operations: [mask]
      targets: [{apiVersion: net.routerd.net/v1alpha1, kind: IPv4Route, name: fallback}]
"""
E1 = "EventSubscription/claims/8b5cc4df7eec7d32"

Give = Callable[..., str]


@pytest.fixture
def give(request: pytest.FixtureRequest, routerctl: Control) -> Give:
    """Write a part as a subscription does; its source."""
    url = os.environ.get("EVENTD_DATABASE_URL") or request.getfixturevalue("sqlite_url")

    def write(
        event_id: str, resources: Sequence[dict[str, Any]] = (), *, ttl: int = HOUR, age: int = 0, **given: Any
    ) -> str:
        now = SystemClock().now()
        result = Result(observed_at=now - age, ttl=ttl, resources=resources, **given)
        part = form_part(
            owner="EventSubscription/claims",
            events=[event(event_id, group="edge", subject="10.88.60.9/32")],
            result=result,
            plugin="claim-plugin",
            clamp=False,
            grace=0,
            now=now,
        )
        with closing(Database(url)) as database:
            database.write_now(put_part, part, now)
        return part.source

    return write


def test_nothing_derived(routerctl: Control) -> None:
    routerctl("apply", "-f", routerctl.file(FALLBACK))
    assert routerctl("dynamic", "list").lines == ["SOURCE  GEN  STATUS  RESOURCES  DIRECTIVES  ACTIONPLANS  EXPIRES"]
    assert routerctl("dynamic", "list", "-o", "json").json == []
    assert routerctl("dynamic", "diff").lines == ["no difference: the parts change no declared resource"]
    assert routerctl("dynamic", "diff", "-o", "json").json == {
        "suppressed": [],
        "addedResources": [],
        "activeParts": [],
        "expiredParts": [],
        "setAside": [],
        "warnings": [],
    }


@everywhere
def test_list_says_what_became_of_each_part(routerctl: Control, give: Give) -> None:
    give("e1", [route("r1"), route("r2")], action_plans=[{"name": "assign"}])
    over = give("e2", [route("r3")], age=2 * HOUR)
    bad = give("e3", [route("r4")], directives=[mask("fallback")])
    listed = routerctl("dynamic", "list")
    rows = {line.split()[0]: line.split()[1:] for line in listed.lines[1:]}
    assert {source: cells[:5] for source, cells in rows.items()} == {
        E1: ["1", "active", "2", "0", "1"],
        over: ["1", "expired", "1", "0", "0"],
        bad: ["1", "set-aside", "1", "1", "0"],
    }
    assert listed.err == f"note: {bad} has no effect: IPv4Route/fallback, which it masks, is not declared\n"
    found = {row["source"]: row for row in routerctl("dynamic", "list", "-o", "json").json}
    assert [found[E1][name] for name in ("generation", "status", "resources", "directives", "actionPlans")] == [
        1,
        "active",
        2,
        0,
        1,
    ]
    assert found[E1]["expiresAt"].startswith("20")
    assert routerctl("dynamic", "list", "--owner", "EventSubscription/other", "-o", "name").lines == []
    assert len(routerctl("dynamic", "list", "--owner", "EventSubscription/claims", "-o", "name").lines) == 3


def test_describe_tells_all_of_a_part(routerctl: Control, give: Give) -> None:
    plan = {"name": "assign", "provider": "oci", "action": "assign-secondary-ip"}
    source = give("e1", [route("r1", x=1)], action_plans=[plan])
    (part,) = routerctl("dynamic", "describe", source, "-o", "json").json
    assert part["source"] == E1
    assert (part["generation"], part["status"], part["storedStatus"]) == (1, "active", "active")
    assert part["name"] == "EventSubscription-claims-8b5cc4df7eec7d32-1"
    assert part["resources"][0]["metadata"]["annotations"] == {
        "routerd.net/dynamic-source": "EventSubscription/claims",
        "routerd.net/event-group": "edge",
        "routerd.net/event-id": "e1",
        "routerd.net/event-subject": "10.88.60.9/32",
    }
    assert (part["directives"], part["actionPlans"], len(part["digest"])) == ([], [plan], 64)
    assert "error" not in part
    told = routerctl("dynamic", "describe", "EventSubscription/claims").out
    assert f"Source:       {E1}\n" in told
    assert "\n                net.routerd.net/v1alpha1/IPv4Route/r1  until 20" in told
    assert told.endswith("\nAction Plans: 1 (for display only)\n                assign  assign-secondary-ip\n")


def test_describe_of_what_is_not_there(routerctl: Control) -> None:
    """A program gets an empty list, a person a sentence."""
    described = routerctl("dynamic", "describe", "EventSubscription/none/x", "-o", "json")
    assert described.json == []
    assert "no part has the source or owner EventSubscription/none/x" in described.err
    bare = routerctl("dynamic", "describe", "claims").err
    assert bare.endswith("shows the parts (did you mean EventSubscription/claims?)\n")
    assert routerctl("dynamic", "describe", "x").out == ""


def test_render_is_what_is_declared_masked_and_given(routerctl: Control, give: Give) -> None:
    routerctl("apply", "-f", routerctl.file(FALLBACK + POLICY))
    give("e1", [route("r1", via="a")], directives=[mask("fallback", reason="better")])
    router = routerctl("dynamic", "render", "-o", "json").json
    assert (router["apiVersion"], router["kind"]) == ("routerd.net/v1alpha1", "Router")
    kinds = [(one["kind"], one["metadata"]["name"]) for one in router["spec"]["resources"]]
    assert kinds == [("DynamicOverridePolicy", "allow"), ("IPv4Route", "r1")]
    assert routerctl("dynamic", "render", "-o", "name").lines == ["dynamicoverridepolicy/allow", "ipv4route/r1"]
    told = routerctl("dynamic", "diff").lines
    assert told[0] == f"+ net.routerd.net/v1alpha1/IPv4Route/r1  source={E1}  generation=1"
    begun = f"- net.routerd.net/v1alpha1/IPv4Route/fallback  maskedBy=DynamicConfigPart/{E1}  maskedUntil=20"
    assert told[1].startswith(begun)
    assert told[1].endswith("Z  reason=better")
    unified = routerctl("dynamic", "diff", "--unified")
    for line in ("--- declared/IPv4Route/fallback", "-  destination: 0.0.0.0/0", "+  via: a"):
        assert line in unified.lines
    assert unified.err == ""
    other = routerctl("dynamic", "diff", "-u", "--config", routerctl.file(FALLBACK, "other.yaml")).lines
    assert ("+  via: a" in other, "-  destination: 0.0.0.0/0" in other) == (False, False), (
        "the part masks, by no policy"
    )
    routerctl("dynamic", "diff", "--exit-code", code=4)
    refused = routerctl("dynamic", "diff", "--exit-code", "--watch", code=2).err
    assert refused.startswith("error: --watch ends only with Ctrl-C and cannot be used with --exit-code")
    ((suppressed,), (added,)) = (
        routerctl("dynamic", "diff", "-o", "json").json[n] for n in ("suppressed", "addedResources")
    )
    assert suppressed["target"] == {
        "apiVersion": "net.routerd.net/v1alpha1",
        "kind": "IPv4Route",
        "name": "fallback",
    }
    assert added == {"source": E1, "generation": 1, **suppressed["target"], "name": "r1"}


def test_what_is_rendered_can_be_begun_with(routerctl: Control, give: Give) -> None:
    """As what would be if this were declared. The yaml of one rendering is the file of another."""
    give("e1", [route("r1")])
    other = routerctl.file(FALLBACK, "other.yaml")
    rendered = routerctl("dynamic", "render", "--config", other)
    assert routerctl("dynamic", "render", "--config", other, "-o", "name").lines == [
        "ipv4route/fallback",
        "ipv4route/r1",
    ]
    again = routerctl.file(rendered.out, "again.yaml")
    clash = routerctl("dynamic", "diff", "--config", again)
    assert clash.lines == ["no difference: the parts change no declared resource"]
    assert clash.err == f"note: {E1} has no effect: IPv4Route/r1 is declared\n"
    broken = routerctl("dynamic", "render", "--config", routerctl.file("kind: EventGroup", "broken.yaml"), code=1)
    assert "broken.yaml" in broken.err
    assert routerctl("get", "all").err == "no resources are declared\n"


def test_a_deleted_part_takes_what_it_gave_with_it(routerctl: Control, give: Give) -> None:
    give("e1", [route("r1"), route("r2")])
    deleted = routerctl("dynamic", "delete", E1)
    assert deleted.lines == [f"{E1} deleted"]
    assert deleted.err == "note: 2 resources deleted with it: IPv4Route/r1, IPv4Route/r2\n"
    assert routerctl("dynamic", "render", "-o", "name").lines == []
    assert routerctl("dynamic", "list", "-o", "name").lines == []


def test_deleting_what_is_not_there_says_what_is(routerctl: Control, give: Give) -> None:
    assert routerctl("dynamic", "delete", E1, code=3).err == f"error: no part has the source {E1}\n"
    give("e1", [route("r1")])
    told = routerctl("dynamic", "delete", E1[:-1], code=3).err
    assert told == f"error: no part has the source {E1[:-1]} (did you mean {E1}?)\n"
    assert "routerctl dynamic list shows them" in routerctl("dynamic", "delete", "x", code=3).err


def test_without_a_database_nothing_is_made(control: Control) -> None:
    for command in (["list"], ["describe", "x"], ["render"], ["diff"], ["delete", "x"]):
        assert "eventd.db does not exist" in control("dynamic", *command, code=3).err
    assert list(control.folder.iterdir()) == []
