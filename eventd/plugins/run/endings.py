"""The ends of plugin runs, as the table of runs stores them. Pure."""

from __future__ import annotations

from eventd.plugins.contract.contract import Outcome, PluginFailed
from eventd.store.rows.runs import RunEnd, RunStatus


def ended_well(outcome: Outcome, *, at: int, source: str, generation: int | None, problem: str = "") -> RunEnd:
    """Return the end of a run whose result was accepted.

    `problem` names what could not be used; `at` in microseconds.
    """
    return RunEnd(
        status=RunStatus.SUCCEEDED,
        completed_at=at,
        exit_code=outcome.exit_code,
        stdout_digest=outcome.stdout_digest,
        stderr=outcome.stderr,
        error=problem,
        source=source,
        generation=generation,
    )


def ended_badly(failed: PluginFailed, *, at: int, status: RunStatus = RunStatus.FAILED) -> RunEnd:
    """Return the end of a run without a result: BLOCKED if the plugin cannot run at all, otherwise `status`."""
    return RunEnd(
        status=RunStatus.BLOCKED if failed.about_plugin else status,
        completed_at=at,
        exit_code=failed.exit_code,
        stdout_digest=failed.stdout_digest,
        stderr=failed.stderr,
        error=str(failed),
    )


def refused_after(outcome: Outcome, reason: str, message: str) -> PluginFailed:
    """Return the failure of a run that succeeded, but whose result cannot be used."""
    return PluginFailed(
        message,
        reason=reason,
        exit_code=outcome.exit_code,
        stdout_digest=outcome.stdout_digest,
        stderr=outcome.stderr,
        started_at=outcome.started_at,
        completed_at=outcome.completed_at,
    )
