"""From an event to a part: real nodes, real programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventd.store.parts.part import StoredPart
from eventd.store.parts.reading import read_parts
from eventd.store.rows.runs import RunStatus, read_runs
from eventd.testing import until
from tests.integration.conftest import MakeSites
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

    await until(parked, "the event to become a dead letter", seconds=20)
    status = await described("EventSubscription", "claims")
    assert (status["subscription"]["phase"], status["subscription"]["deadLetters"]) == ("Degraded", 1)
    assert [(run["status"], run["exitCode"]) for run in status["recentRuns"]] == [("parked", 42)]
    assert [letter["eventId"] for letter in status["recentDeadLetters"]] == ["e1"]
    assert (await described("Plugin", "routes"))["recentRuns"] == status["recentRuns"]


# --- windows --------------------------------------------------------------------------------------------------------


async def test_a_window_closes_when_it_is_due(site: Site, tmp_path: Path) -> None:
    spec = {"batchWindow": "250ms"}
    await site.apply(group(site.name), plugin(program(tmp_path, ROUTES)), subscription(trigger=spec))
    late: list[int] = []
    for number in range(2):
        await site.emit(f"a{number}", f"b{number}", type=OBSERVED, subject=f"10.0.0.{number}/32")
        await some_parts(site, number + 1)
        (run,) = await runs(site, limit=1)
        assert run.events == 2
        late.append(run.started_at - (await site.stored())[-1].recorded_at - 250_000)
    print(f"windows closed {', '.join(f'{each / 1000:.1f}' for each in late)} ms late")  # noqa: T201
    assert min(late) >= 0, "none closes before it is due"
    assert min(late) < 100_000, "and on a machine with something else to do, not much later"


# --- failures -------------------------------------------------------------------------------------------------------

FAILING = """
if any(event["id"] == "bad" for event in events):
    print("no route to provider", file=sys.stderr)
    sys.exit(42)
answer([route(event) for event in events])
"""


async def test_what_the_plugin_cannot_take_is_set_aside_with_its_words(site: Site, tmp_path: Path) -> None:
    await site.apply(
        group(site.name), plugin(program(tmp_path, FAILING)), subscription(trigger={"batchWindow": "50ms"})
    )
    await site.emit("good", "bad", "fine", type=OBSERVED, subject="")
    parts_of = await some_parts(site, 2)
    assert sorted(id for part in parts_of for id in part.event_ids) == ["fine", "good"]
    status = (await site.ask("resources.describe", kind="EventSubscription", name="claims"))["status"]
    assert [(letter["eventId"], letter["reason"]) for letter in status["recentDeadLetters"]] == [("bad", "exit_code")]
    (parked,) = [run for run in status["recentRuns"] if run["status"] == "parked"]
    assert (parked["eventIds"], parked["stderr"]) == (["bad"], "no route to provider\n")
    ((words,),) = await site.rows("SELECT detail FROM dead_letters")
    assert words.endswith("it wrote: no route to provider")
    assert [run.exit_code for run in await runs(site, event_id="bad", statuses=[RunStatus.FAILED])][:1] == [42]


async def test_a_missing_plugin_blocks_until_it_is_there(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "plugin"
    await site.apply(group(site.name), plugin(file), subscription(retry={"baseBackoff": "1m", "maxBackoff": "1h"}))
    await site.emit("e1", type=OBSERVED, subject="10.0.0.1/32")

    async def blocked(reason: str) -> bool:
        (state,) = (await site.ask("subscriptions.list"))["subscriptions"]
        return (state["state"], state["reason"], state["deadLetters"]) == ("blocked", reason, 0)

    await until(lambda: blocked("missing"), "the subscription to be blocked")
    program(tmp_path, ROUTES).chmod(0o644)
    await site.ask("subscriptions.retry", subscription="claims")
    await until(lambda: blocked("not_executable"), "it to be blocked for another reason")
    file.chmod(0o755)
    await site.ask("subscriptions.retry", subscription="claims")
    await some_parts(site)
    assert {(run.status, run.attempt) for run in (await runs(site))[1:]} == {(RunStatus.BLOCKED, 1)}


async def test_one_waits_for_no_other(site: Site, tmp_path: Path) -> None:
    slow = program(tmp_path, "time.sleep(60)", name="slow")
    bad = program(tmp_path, "sys.exit(1)", name="bad")
    good = program(tmp_path, ROUTES, name="good")
    await site.apply(
        group(site.name),
        *[plugin(file, name=file.name, timeout="61s") for file in (slow, bad, good)],
        *[subscription(name=file.name, plugin=file.name) for file in (slow, bad, good)],
    )
    for number in range(3):
        await site.emit(f"e{number}", type=OBSERVED, subject=f"10.0.0.{number}/32")
        await some_parts(site, number + 1)
    assert {part.owner for part in await parts(site)} == {"EventSubscription/good"}
    assert [str(run.status) for run in await runs(site, subscription="slow")] == ["running"]


async def test_no_more_runs_of_a_plugin_go_on_at_once_than_declared(site: Site, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    code = f"""
mark = os.path.join({str(marks)!r}, str(os.getpid()))
open(mark, "w").close()
time.sleep(0.05)
print(len(os.listdir({str(marks)!r})), file=sys.stderr)
os.unlink(mark)
{ROUTES}
"""
    names = [f"s{number}" for number in range(6)]
    await site.apply(
        group(site.name),
        plugin(program(tmp_path, code), concurrency=2),
        *[subscription(name=name) for name in names],
    )
    await site.emit("e1", type=OBSERVED, subject="10.0.0.1/32")
    await some_parts(site, 6)
    assert max(int(run.stderr) for run in await runs(site)) <= 2


# --- events ---------------------------------------------------------------------------------------------------------

ECHO = """
answer(events=[{"type": "lab.ping", "subject": event["subject"], "payload": {"of": event["id"]}} for event in events])
"""


async def test_two_nodes_that_feed_each_other_come_to_rest(sites: MakeSites, tmp_path: Path) -> None:
    a, b = [await made.start() for made in sites("a", "b")]
    b.secret.write_text(a.secret.read_text())
    await a.join(b)
    await b.join(a)
    for one in (a, b):
        await one.apply(plugin(program(tmp_path, ECHO), capabilities=["emit.events"]), subscription("lab.*"))
    await a.emit("e1", type="lab.begin", subject="s")

    async def at_rest() -> bool:
        same = sorted(await a.ids()) == sorted(await b.ids())
        waits = [(await one.ask("subscriptions.list"))["subscriptions"][0]["waitingEvents"] for one in (a, b)]
        return same and waits == [0, 0] and len(await a.ids()) >= 4

    await until(at_rest, "both to have said all", seconds=20)
    # e1 and what each of them says of it; then each says something of what the other has said, and that is all.
    assert 4 <= len(await a.ids()) <= 5


async def test_a_stop_and_a_start_lose_no_window(site: Site, tmp_path: Path) -> None:
    await site.apply(
        group(site.name), plugin(program(tmp_path, ROUTES)), subscription(trigger={"batchWindow": "700ms"})
    )
    await site.emit("e1", type=OBSERVED, subject="10.0.0.1/32")
    recorded = (await site.stored())[0].recorded_at
    await site.stop()
    await site.start()
    await site.emit("e2", type=OBSERVED, subject="10.0.0.2/32")
    (part,) = await some_parts(site)
    assert part.event_ids == ["e1", "e2"]
    (run,) = await runs(site)
    assert run.started_at >= recorded + 700_000
    assert (run.attempt, run.status) == (1, RunStatus.SUCCEEDED)
