"""What needs attention at a node besides links."""

from __future__ import annotations

from typing import Any, cast

from eventd.console.many.attention import MOST_COUNTED, MOST_STATES, read_attention, read_findings
from eventd.console.view.node_view import NodeView
from eventd.errors import Forbidden

CALM: dict[str, Any] = {
    "dead_letters.all": {"groups": []},
    "subscriptions.list": {"subscriptions": [{"state": "running"}]},
    "callbacks.list": {"callbacks": [{"state": "running"}, {"state": "new"}]},
    "topology.show": {"routers": [{"exists": True, "state": "running"}, {"exists": False, "state": ""}]},
}


class Answers:
    """A node that gives these answers."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = CALM | answers

    async def call(self, operation: str, /, **_params: Any) -> Any:
        answer = self._answers[operation]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def words(**answers: Any) -> list[str]:
    node = cast(NodeView, Answers({name.replace("__", "."): answer for name, answer in answers.items()}))
    return [item.words for item in await read_attention(node)]


async def test_a_node_at_which_everything_runs_needs_none() -> None:
    assert await words() == []


async def test_dead_letters_and_what_does_not_run_are_counted_by_state() -> None:
    found = await words(
        dead_letters__all={"groups": [{"count": 2, "exact": True}, {"count": 1000, "exact": False}]},
        subscriptions__list={"subscriptions": [{"state": "blocked"}, {"state": "paused"}, {"state": "blocked"}]},
        callbacks__list={"callbacks": [{"state": "backing-off"}]},
        topology__show={"routers": [{"exists": True, "state": "backing-off"}]},
    )
    assert found == [
        "at least 1,002 dead letters",
        "2 subscriptions blocked",
        "1 subscription paused",
        "1 callback backing-off",
        "1 router backing-off",
    ]


async def test_what_cannot_be_read_hides_nothing_else() -> None:
    for nothing in (Forbidden("no"), {}, {"subscriptions": [1]}, {"subscriptions": None}, []):
        found = await words(subscriptions__list=nothing, callbacks__list={"callbacks": [{"state": "failed"}]})
        assert found == ["1 callback failed"]


async def test_findings_of_doctor_are_counted_without_those_of_links_that_do_not_run() -> None:
    async def found(checks: Any) -> list[str] | None:
        items = await read_findings(cast(NodeView, Answers({"doctor.examine": checks})))
        return None if items is None else [item.words for item in items]

    lag, runs = {"status": "warn", "code": "delivery-lag"}, {"status": "fail", "code": "subscription-runs"}
    link, waits = ({"status": "warn", "code": code, "peer": "b"} for code in ("link-down", "pending-deliveries"))
    assert await found({"checks": [lag, runs, link, waits, {"status": "pass"}]}) == ["2 findings of doctor"]
    assert await found({"checks": [waits]}) == ["1 finding of doctor"], "the link runs"
    assert await found({"checks": [link, {"status": "pass", "code": "delivery-lag"}]}) == []
    for nothing in (Forbidden("no"), {}, {"checks": None}, {"checks": [1]}, []):
        assert await found(nothing) is None, "that is not to say that there is nothing"


async def test_a_node_that_invents_states_fills_no_page() -> None:
    invented = [{"state": f"state-{number}"} for number in range(MOST_COUNTED + 5)]
    found = await words(
        subscriptions__list={"subscriptions": invented},
        dead_letters__all={"groups": [{"count": float("inf"), "exact": True}]},
    )
    assert len(found) == MOST_STATES + 1
    assert found[-1] == f"{MOST_COUNTED - MOST_STATES:,} subscriptions in other states"
