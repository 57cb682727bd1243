"""A page that asks several groups is not held up by one that does not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventd.console.pages import visit
from eventd.console.pages.visit import Visit

SLOW = "slow"


async def _call(operation: str, *, group: str) -> dict[str, Any]:
    if group == SLOW:
        await asyncio.Event().wait()
    return {"group": group}


async def ask(*groups: str) -> tuple[list[str], list[str]]:
    asked = cast("Visit", SimpleNamespace(view=SimpleNamespace(call=_call)))
    found, late = await Visit.ask_groups(asked, "links.status", groups)
    return [one["group"] for one in found], late


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_group_without_an_answer_is_left_out_wherever_it_is(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit, "GROUPS_SECONDS", 0.5)
    groups = ["a", "b"]
    groups.insert(at, SLOW)
    assert await ask(*groups) == (["a", "b"], [SLOW])


async def test_groups_for_which_no_time_is_left_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit, "GROUPS_SECONDS", 0.0)
    assert await ask("a", "b") == ([], ["a", "b"])
    assert await ask("a") == (["a"], []), "the only one is asked"
