"""The jobs by which segments are read: with which parameters, in which order, and how they are shared among tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eventd.audit.arrays.columns import NEVER
from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.hourly_skew import HourlySkew
from eventd.audit.segments.plan import LakePlan, owner_of
from eventd.audit.segments.segment_jobs import SegmentJob
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

_PER_TASK: Final = 48 << 20
"""Bytes of segments per task, unless that makes too few tasks for all cores."""


def oldest_jobs(known: Sequence[tuple[int, Segment]], percent: float) -> list[SegmentJob]:
    """Return jobs for the least recently read segments: `percent` of the bytes of all, at least one, or none for 0.

    `known` are segments, each with the time at which it was last read.
    """
    wanted = sum(segment.manifest.bytes for _, segment in known) * percent / 100
    jobs: list[SegmentJob] = []
    for _, segment in sorted(known, key=lambda one: (one[0], one[1].place.name)):
        if not percent or (jobs and wanted <= 0):
            break
        jobs.append(job_of(segment))
        wanted -= segment.manifest.bytes
    return jobs


def job_for(segment: Segment, plan: LakePlan) -> SegmentJob:
    """Return the job of a segment of events or deliveries."""
    owner, place = owner_of(segment), segment.place
    since = plan.since.get(owner, NEVER)
    if place.book is Ledger.EVENTS:
        links = tuple(link.within(place.after, place.upto) for link in plan.links.get(owner, ()))
        return job_of(segment, links=links, since=since)
    return job_of(segment, skews=_near_skews(plan.skews(owner.node), segment.manifest.times), since=since)


def _near_skews(skews: Mapping[str, HourlySkew], times: tuple[int, int] | None) -> dict[str, HourlySkew]:
    """Return the skews by peer, cut to the hours of a segment and an hour on each side, or else to the nearest hour.

    Empty for a segment without times.
    """
    if times is None:
        return {}
    first, last = times[0] // HOUR - 1, times[1] // HOUR + 1
    found = {}
    for peer, skew in skews.items():
        near = [at for at, hour in enumerate(skew.hours) if first <= hour <= last]
        near = near or [min(range(len(skew.hours)), key=lambda at: abs(skew.hours[at] - first))]
        found[peer] = HourlySkew(tuple(skew.hours[at] for at in near), tuple(skew.values[at] for at in near))
    return found


def job_of(segment: Segment, **known: Any) -> SegmentJob:
    """Return the job of a segment with these parameters."""
    return SegmentJob(name=segment.place.name, manifest=segment.manifest, **known)


def share_out(jobs: Sequence[SegmentJob], least: int) -> list[list[str]]:
    """Return the files of the jobs' segments in shares of about the same size, one per task.

    `least`: how many tasks there are at least, if there are so many jobs.
    """
    if not jobs:
        return []
    total = sum(job.manifest.bytes for job in jobs)
    pieces = min(len(jobs), max(least, total // _PER_TASK))
    shares: list[list[str]] = [[] for _ in range(pieces)]
    weights = [0] * pieces
    for job in sorted(jobs, key=lambda job: -job.manifest.bytes):
        at = weights.index(min(weights))
        shares[at].append(job.segment.place.data)
        weights[at] += job.manifest.bytes + 1
    return shares
