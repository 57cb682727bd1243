"""Checks whether commands on the node's machine reach the node over its local socket."""

from __future__ import annotations

from eventd.api.doctor.report import Check, CheckStatus

NAME, CODE = "local socket", "local-socket"


def check_local_socket(problem: str) -> list[Check]:
    """Return one warning if there is a problem, else no check.

    Commands still work, through the database.
    """
    if not problem:
        return []
    remedy = "fix the reported problem and restart the node; until then routerctl opens the database itself"
    return [Check(NAME, CheckStatus.WARN, CODE, problem, remedy)]
