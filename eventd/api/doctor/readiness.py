"""Checks whether the node that serves the database is ready, as `/readyz` reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from eventd.api.doctor.report import Check, CheckStatus
from eventd.api.framework.operations import GROUP
from eventd.errors import Unavailable

NAME, CODE = "node readiness", "node-readiness"


async def check_readiness(ask: Callable[[], Awaitable[Mapping[str, str] | None]], group: str) -> list[Check]:
    """Return one failed check if the node is not ready, as far as that concerns `group` (all groups if empty).

    Return no check if the node is ready or none is running, and a skipped one if the node cannot be queried.
    """
    try:
        checks = await ask()
    except Unavailable as error:
        return [Check(NAME, CheckStatus.SKIP, CODE, error.message, error.hint)]
    wrong = {name: state for name, state in (checks or {}).items() if state != "ok" and _concerns(name, group)}
    if not wrong:
        return []
    detail = "; ".join(f"{name}: {state}" for name, state in wrong.items())
    remedy = "fix the reported problem; the node retries automatically"
    return [Check(NAME, CheckStatus.FAIL, CODE, f"the node is not ready: {detail}", remedy, group=group)]


def _concerns(name: str, group: str) -> bool:
    return not group or not name.startswith(GROUP) or name == GROUP + group
