"""The courses of one event at several nodes, beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def note_arrivals(rows: Iterable[dict[str, Any]]) -> None:
    """Take the remedies from links that do not select an event for peers that have it all the same.

    `arrived` of such an entry of `notSelected` is true. `rows`: of nodes, with their `courses` of the event, by group.
    """
    courses = [course for row in rows for course in row["courses"] if course["stored"]]
    have = {(course["group"], course["node"]) for course in courses}
    for course in courses:
        course["notSelected"] = [
            each | {"arrived": True, "remedy": ""}
            if (course["group"], each["peer"]) in have
            else each | {"arrived": False}
            for each in course.get("notSelected", [])
        ]
