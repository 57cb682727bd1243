"""In which order each node wrote everything down: positions, seqs, and the numbers of its books."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from eventd.audit.generate.courses import Course
from eventd.audit.generate.history import History
from eventd.audit.generate.mixing import Ints, Mask
from eventd.audit.generate.world import World

OWN: Final = -1
"""In the place of a course: the node's own events."""


@dataclass(frozen=True)
class Sheet:
    """Things that one node wrote down, in their order: at true time `at`, from batch `batch` of `course` (its uid).

    Of a log they are commits (where `course` is OWN, `batch` is a commit of the node's history), else they are batches.
    """

    at: Ints
    course: Ints
    batch: Ints

    def __len__(self) -> int:
        return len(self.at)


def number_all(world: World) -> None:
    """Find the positions of all events in all logs, and the ranges of all batches."""
    for course in world.courses:
        course.close(world.histories[course.source].soon)
    for node in range(world.settings.nodes):
        _number_log(world, node)
    links: dict[tuple[int, int, int], list[Course]] = {}
    for course in world.courses:
        links.setdefault((course.sender, course.peer, course.group), []).append(course)
    for courses in links.values():
        _find_ranges(world, courses)


def log_of(world: World, node: int) -> Sheet:
    """The commits to a node's log."""
    history = world.histories[node]
    sheets = [Sheet(history.at, np.full_like(history.at, OWN), np.arange(len(history.at)))]
    for course in world.courses:
        if course.peer == node:
            batches = np.flatnonzero(np.diff(course.held_at))
            sheets.append(Sheet(course.recorded[batches], np.full_like(batches, course.uid), batches))
    return _merge(sheets)


def outbox_of(world: World, node: int) -> Sheet:
    """The batches a node sent, as they were acknowledged."""
    return _merge([_whole(one, one.acked) for one in world.courses if one.sender == node and one.kept])


def inbox_of(world: World, node: int) -> Sheet:
    """The batches a node answered, as they were recorded."""
    came = [one for one in world.courses if one.peer == node and one.given]
    return _merge([_some(_whole(one, one.recorded), ~one.moot) for one in came])


class Places(NamedTuple):
    """Where records lie in a log and in their group, and when they were recorded, by the node's clock."""

    position: Ints
    seq: Ints
    at: Ints


def places_of(world: World, course: Course, numbers: Ints) -> Places:
    """The places of a course's events in the log of its sender."""
    skew = world.skews[course.sender]
    if course.feed is None:
        history = world.histories[course.source]
        commit = np.searchsorted(history.first, numbers, "right") - 1
        within = numbers - history.first[commit]
        return Places(history.position[commit] + within, history.seq[commit] + within, history.at[commit] + skew)
    feed = course.feed
    place = np.searchsorted(feed.held, numbers)
    batch = np.searchsorted(feed.held_at, place, "right") - 1
    within = place - feed.held_at[batch]
    return Places(feed.position[batch] + within, feed.seq[batch] + within, feed.recorded[batch] + skew)


def sizes_of(world: World, sheet: Sheet, history: History) -> Ints:
    """How many records each commit to a log has."""
    sizes = np.zeros(len(sheet), np.int64)
    for uid, places in by_course(sheet):
        edges = history.first if uid == OWN else world.courses[uid].held_at
        sizes[places] = np.diff(edges)[sheet.batch[places]]
    return sizes


def by_course(sheet: Sheet) -> list[tuple[int, Ints]]:
    """Each course of a sheet, with the places of its batches."""
    order = np.argsort(sheet.course, kind="stable")
    found, starts = np.unique(sheet.course[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if len(found) else []


def _number_log(world: World, node: int) -> None:
    history = world.histories[node]
    sheet = log_of(world, node)
    sizes = sizes_of(world, sheet, history)
    position = np.cumsum(sizes) - sizes + 1
    group = np.zeros(len(sheet), np.int64)
    for uid, places in by_course(sheet):
        group[places] = history.group[sheet.batch[places]] if uid == OWN else world.courses[uid].group
    seq = position.copy()
    for each in range(len(world.groups) if len(world.groups) > 1 else 0):
        places = np.flatnonzero(group == each)
        seq[places] = np.cumsum(sizes[places]) - sizes[places] + 1
    for uid, places in by_course(sheet):
        target = history if uid == OWN else world.courses[uid]
        target.position, target.seq = np.zeros_like(target.commits), np.zeros_like(target.commits)
        target.position[sheet.batch[places]] = position[places]
        target.seq[sheet.batch[places]] = seq[places]
    world.heads.append(int(sizes.sum()))


def _find_ranges(world: World, courses: Sequence[Course]) -> None:
    """The range of each batch in its sender's positions: in the ordinary course it begins where the last one ended."""
    ordinary = [one for one in courses if not (one.alone or one.repair)]
    for one in courses:
        ghost = world.histories[one.source].ghost
        one.upto = np.zeros(1, np.int64) if ghost else places_of(world, one, one.last).position
        one.after = one.upto - (0 if one.probe or ghost else 1)
        if one.repair and not one.alone:
            one.after = np.append(0, one.upto[:-1])
    if ordinary:
        ends = np.concatenate([one.upto for one in ordinary])
        order = np.argsort(ends, kind="stable")
        after = np.empty_like(ends)
        after[order] = np.append(0, ends[order][:-1])
        edges = np.cumsum([one.batches for one in ordinary])[:-1]
        for one, begun in zip(ordinary, np.split(after, edges), strict=True):
            one.after, one.mark = begun, one.upto
    known = np.sort(np.concatenate([one.recorded for one in ordinary])) if ordinary else np.zeros(0, np.int64)
    ranks = np.sort(np.concatenate([one.upto for one in ordinary])) if ordinary else known
    for one in courses:
        if one.alone or one.repair:
            one.mark = np.append(0, ranks)[np.searchsorted(known, one.recorded, "right")]


def _whole(course: Course, at: Ints) -> Sheet:
    return Sheet(at, np.full_like(at, course.uid), np.arange(len(at)))


def _some(sheet: Sheet, chosen: Mask) -> Sheet:
    return Sheet(sheet.at[chosen], sheet.course[chosen], sheet.batch[chosen])


def _merge(sheets: Sequence[Sheet]) -> Sheet:
    if not sheets:
        none = np.zeros(0, np.int64)
        return Sheet(none, none, none)
    at, course, batch = (np.concatenate([getattr(one, name) for one in sheets]) for name in ("at", "course", "batch"))
    order = np.lexsort((batch, course, at))
    return Sheet(at[order], course[order], batch[order])
