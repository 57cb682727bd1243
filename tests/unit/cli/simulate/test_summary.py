"""The lines at the end of a campaign: its numbers with their nouns, wrapped after an item."""

from __future__ import annotations

from eventd.cli.simulate.summary import MANY_RUNS, WIDTH, summary_lines
from eventd.simulation.campaign import CampaignResult

BRANCHES = {f"a rare branch of the nodes' code {number}": number for number in range(40)}


def test_one_run_is_no_plural() -> None:
    found = CampaignResult(runs=1, kills=1, power_losses=1, batches=1, acknowledged_events=1, sum="0a")
    first = next(summary_lines(found))
    assert first.startswith("1 run, 0 with violations, 0 too idle to count; 1 event acknowledged, 1 batch; 1 kill,")
    assert "1 power loss; 0 runs per CPU minute; campaign sum 0a" in " ".join(summary_lines(found))


def test_a_long_list_is_wrapped_after_an_item_and_keeps_all_of_them() -> None:
    lines = [*summary_lines(CampaignResult(runs=1, branches=dict(BRANCHES)))]
    assert max(map(len, lines)) <= WIDTH
    _, shown = " ".join(line.strip() for line in lines).split("rare branches: ")
    assert shown.split(", ") == [f"{count} {name}" for name, count in BRANCHES.items() if count]
    assert all(line.endswith(",") for line in lines if "branch" in line and line != lines[-1])


def test_branches_without_a_run_are_named_after_many_runs_only() -> None:
    def told(runs: int) -> bool:
        return any(
            line.startswith("never taken: ") for line in summary_lines(CampaignResult(runs=runs, branches={"a": 0}))
        )

    assert [told(MANY_RUNS - 1), told(MANY_RUNS)] == [False, True]
