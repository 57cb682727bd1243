"""A claimed job as JSON, in the form in which its holder receives it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw

from eventd.log.core.records import encoded, read_body
from eventd.log.queues.units import Job

_JOB = {
    "type": "object",
    "properties": {
        "$seq": {"type": "integer"},
        "lease_id": {"type": "string"},
        "deadline": {"type": "integer"},
        "$ts": {"type": "integer"},
        "$tag": {"type": "string"},
        "deliveries": {"type": "integer"},
        "data": {},
        "meta": {},
    },
    "required": ["$seq", "lease_id", "deadline", "$ts", "deliveries", "data"],
}
ShownJobs = Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": _JOB})]
"""A JSON list of jobs, each as `show_job` returns it."""


def show_job(job: Job, topic: str = "") -> str:
    """Return a job as a JSON text, with the member `topic` unless that is empty. Times in milliseconds."""
    stored = read_body(job.body)
    parts = [f'"topic":{encoded(topic)}'] if topic else []
    parts.append(f'"$seq":{job.seq},"lease_id":"{job.lease_id}","deadline":{job.deadline // 1000}')
    parts.append(f'"$ts":{job.recorded_at // 1000}')
    if stored.tag is not None:
        parts.append(f'"$tag":{encoded(stored.tag)}')
    parts.append(f'"deliveries":{job.deliveries},"data":{stored.data}')
    if stored.meta is not None:
        parts.append(f'"meta":{stored.meta}')
    return f"{{{','.join(parts)}}}"
