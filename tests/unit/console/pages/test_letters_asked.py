"""The questions before dead letters are retried or dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from eventd.console.pages.letters import ask_drop_chosen, ask_retry_chosen
from eventd.console.pages.visit import Visit


def visit(*, may: bool = True) -> Visit:
    async def call(_operation: str, *, ids: list[int]) -> Any:
        owner = {"kind": "peer", "owner": "site-c", "group": "edge", "reason": "loop"}
        return {"deadLetters": [owner | {"eventId": f"e{one}"} for one in ids]}

    return cast("Visit", SimpleNamespace(view=SimpleNamespace(call=call, may=lambda _operation: may)))


async def test_a_retry_names_the_event_and_no_number_that_other_pages_do_not_show() -> None:
    question = await ask_retry_chosen(visit(), {"pick": ["13"]})
    assert question.lines == (
        "Sends 1 dead letter once more. Those that cannot be sent again stay dead letters.",
        "Event e13 of the peer site-c in edge: loop.",
    )


async def test_dead_letters_that_are_not_all_named_have_their_numbers() -> None:
    question = await ask_drop_chosen(visit(), {"pick": [str(number) for number in range(1, 13)]})
    assert question.lines[0].startswith("Drops 12 dead letters (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …): ")
    assert len(question.lines) == 11
    assert "(13)" in (await ask_retry_chosen(visit(may=False), {"pick": ["13"]})).lines[0]
