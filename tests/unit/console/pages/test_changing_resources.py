"""The form that changes one resource."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from eventd.console.pages.resources import _changed, ask_apply
from eventd.console.pages.visit import Visit

TOPIC = {"apiVersion": "topic.routerd.net/v1alpha1", "kind": "Topic", "metadata": {"name": "t", "generation": 1}}


async def test_a_text_of_several_resources_is_refused_before_its_changes_are_planned() -> None:
    called = []

    async def call(operation: str, **_params: Any) -> Any:
        called.append(operation)
        return TOPIC | {"spec": {}}

    text = "\n---\n".join(
        f"apiVersion: topic.routerd.net/v1alpha1\nkind: Topic\nmetadata: {{name: t{number}}}\nspec: {{}}"
        for number in range(3)
    )
    params = {"kind": "Topic", "name": "t", "text": text, "made_from": "topic.routerd.net/v1alpha1 Topic 1"}
    question = await ask_apply(cast(Visit, SimpleNamespace(view=SimpleNamespace(call=call))), params)
    assert "must hold Topic/t of topic.routerd.net/v1alpha1 and nothing else" in question.problem
    assert called == ["resources.get"]


def test_a_narrower_filter_is_said_to_end_the_delivery_of_other_events() -> None:
    change = {
        "action": "configured",
        "kind": "EventPeer",
        "name": "site-c",
        "narrows": ["types dns.*"],
        "stops": ["a", "b"],
    }
    (line,) = _changed([change])
    assert line == (
        "EventPeer site-c will be changed; its filter is narrower: only types dns.* are sent from now on; other"
        " events in the backlog are not sent; of the newest stored events, those of the types a, b are left out."
    )
