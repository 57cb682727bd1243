"""Checks whether commands on the node's machine reach the node over its local socket."""

from __future__ import annotations

from eventd.api.doctor.report import Check, CheckStatus
from eventd.net.local_socket import SocketProblem

NAME, CODE = "local socket", "local-socket"


def check_local_socket(problem: SocketProblem | None) -> list[Check]:
    """Return one warning if there is a problem, else no check.

    Commands still work, through the database.
    """
    if problem is None:
        return []
    return [Check(NAME, CheckStatus.WARN, CODE, problem.detail, problem.remedy)]
