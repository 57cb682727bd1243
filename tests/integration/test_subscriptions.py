"""From an event to a part: real nodes, real programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventd.store.parts import StoredPart, read_parts
from eventd.store.runs import RunStatus, read_runs
from eventd.testing import until
from tests.support.declared import group
from tests.support.derived import OBSERVED, ROUTES, plugin, program, subscription
from tests.support.sites import Site


async def parts(site: Site) -> list[StoredPart]:
    return await site.running.log.database.read(read_parts)


async def runs(site: Site, **asked: Any) -> list[Any]:
    return await site.running.log.database.read(lambda conn: read_runs(conn, **asked))


async def some_parts(site: Site, count: int = 1) -> list[StoredPart]:
    """Until there are so many."""

    async def there() -> list[StoredPart] | None:
        found = await parts(site)
        return found if len(found) == count else None

    await until(there, f"{count} parts", seconds=20)
    return await parts(site)


async def test_a_matching_event_becomes_a_part(site: Site, tmp_path: Path) -> None:
    await site.apply(group(site.name), plugin(program(tmp_path, ROUTES)), subscription())
    await site.emit("e1", type=OBSERVED, subject="10.88.60.9/32")
    (part,) = await some_parts(site)
    assert part.source == "EventSubscription/claims/8b5cc4df7eec7d32"
    assert part.resources[0]["metadata"]["annotations"] == {
        "routerd.net/dynamic-source": "EventSubscription/claims",
        "routerd.net/event-group": "edge",
        "routerd.net/event-id": "e1",
        "routerd.net/event-subject": "10.88.60.9/32",
    }
    (run,) = await runs(site)
    assert (run.status, run.attempt, run.event_ids, run.exit_code) == (RunStatus.SUCCEEDED, 1, ["e1"], 0)
    assert (run.source, run.generation) == (part.source, 1)
