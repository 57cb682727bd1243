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


async def test_a_description_says_how_a_subscription_and_its_plugin_do(site: Site, tmp_path: Path) -> None:
    failing = program(tmp_path, "print('no route to the cloud', file=sys.stderr); sys.exit(42)")
    await site.apply(group(site.name), plugin(failing), subscription(retry={"maxAttempts": 1}))
    await site.emit("e1", type=OBSERVED, subject="10.88.60.9/32")

    async def described(kind: str, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = (await site.ask("resources.describe", kind=kind, name=name))["status"]
        return answer

    async def parked() -> bool:
        return bool((await described("EventSubscription", "claims"))["recentDeadLetters"])

    await until(parked, "the event to be parked", seconds=20)
    status = await described("EventSubscription", "claims")
    assert (status["subscription"]["phase"], status["subscription"]["deadLetters"]) == ("Degraded", 1)
    assert [(run["status"], run["exitCode"]) for run in status["recentRuns"]] == [("parked", 42)]
    assert [letter["eventId"] for letter in status["recentDeadLetters"]] == ["e1"]
    assert (await described("Plugin", "routes"))["recentRuns"] == status["recentRuns"]
