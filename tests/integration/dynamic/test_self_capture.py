"""A node does not report the addresses that it captures itself as clients: at every way by which an event enters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventd.dynamic.guard import SelfCapture
from eventd.store.parts.reading import read_parts
from eventd.store.rows.runs import RunStatus, read_runs
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.declared import group
from tests.support.derived import EXPIRED, OBSERVED, plugin, program, subscription
from tests.support.sites import Site

CLAIM = """
answer([{"apiVersion": "hybrid.routerd.net/v1alpha1", "kind": "RemoteAddressClaim",
         "metadata": {"name": "onprem-" + event["subject"].split("/")[0].replace(".", "-")},
         "spec": {"address": event["subject"], "capture": {"type": "provider-secondary-ip"}}} for event in events])
"""
ECHO = """
answer(events=[{"type": "routerd.client.ipv4.observed", "subject": event["payload"]["about"], "payload": {}}
               for event in events])
"""


async def capture(site: Site, directory: Path, address: str = "10.77.60.10/32") -> None:
    """A claim on an address, out of an event that is none of this node's own reports."""
    await site.apply(
        group(site.name, port=site.port, secret=site.secret),
        plugin(program(directory, CLAIM, name="claim"), name="claim"),
        subscription("remote.client", plugin="claim"),
    )
    await site.emit("remote", type="remote.client", subject=address)
    await until(lambda: site.running.log.database.read(read_parts), "the claim")


async def test_a_report_of_a_captured_address_is_refused_and_not_stored(site: Site, tmp_path: Path) -> None:
    await capture(site, tmp_path)
    for index, fields in enumerate(
        [
            {"subject": "10.77.60.10/32"},
            {"subject": "10.77.60.10"},
            {"subject": "10.77.60.11", "payload": {"address": "10.77.60.10/24"}},
        ]
    ):
        with pytest.raises(SelfCapture, match=r"10\.77\.60\.10 is captured by RemoteAddressClaim/onprem-10-77-60-10"):
            await site.emit(f"own{index}", type=OBSERVED, **fields)
    assert await site.ids() == ["remote"]


async def test_what_else_is_reported_is_stored(site: Site, tmp_path: Path) -> None:
    await capture(site, tmp_path)
    await site.emit("other", type=OBSERVED, subject="10.77.60.11/32")
    await site.emit("elsewhere", type=OBSERVED, subject="10.77.60.10", payload={"address": "10.77.60.11"})
    await site.emit("another-type", type=EXPIRED, subject="10.77.60.10/32")
    await site.emit("no-address", type=OBSERVED, subject="the printer")
    assert await site.ids() == ["remote", "other", "elsewhere", "another-type", "no-address"]


async def test_of_a_batch_with_a_captured_address_nothing_is_stored(site: Site, tmp_path: Path) -> None:
    await capture(site, tmp_path)
    events: list[dict[str, Any]] = [
        {"id": "plain", "type": "other", "subject": "10.77.60.10/32"},
        {"id": "good", "type": OBSERVED, "subject": "10.77.60.11/32"},
        {"id": "bad", "type": OBSERVED, "subject": "10.77.60.10/32"},
    ]
    with pytest.raises(SelfCapture) as caught:
        await site.ask("events.emit", group="edge", events=events)
    assert [problem["index"] for problem in caught.value.detail] == [2]
    assert await site.ids() == ["remote"]


async def test_a_plugin_cannot_report_it_either(site: Site, tmp_path: Path) -> None:
    await capture(site, tmp_path)
    await site.apply(
        plugin(program(tmp_path, ECHO, name="echo"), name="echo", capabilities=["emit.events"]),
        subscription("ask", name="echo", plugin="echo", retry={"maxAttempts": 1}),
    )
    await site.emit("q1", type="ask", payload={"about": "10.77.60.10/32"})
    await site.emit("q2", type="ask", payload={"about": "10.77.60.99/32"})

    async def parked() -> list[Any]:
        return await site.running.log.database.read(
            lambda conn: read_runs(conn, subscription="echo", statuses=[RunStatus.PARKED])
        )

    async def reported() -> list[str]:
        return [record.subject for record in await site.stored() if record.tag == OBSERVED]

    await until(parked, "the report to be refused")
    await until(reported, "the other one")
    (run,) = await parked()
    assert run.event_ids == ["q1"]
    assert "10.77.60.10 is captured by" in run.error
    assert await reported() == ["10.77.60.99/32"]


async def test_an_answer_cannot_report_what_it_captures_itself(site: Site, tmp_path: Path) -> None:
    both = (
        CLAIM.strip().removesuffix(")")
        + f""",
       events=[{{"type": "{OBSERVED}", "subject": event["subject"]}} for event in events])"""
    )
    await site.apply(
        group(site.name),
        plugin(program(tmp_path, both, name="both"), name="both"),
        subscription("ask", name="both", plugin="both", retry={"maxAttempts": 1}),
    )
    await site.emit("q1", type="ask", subject="10.77.60.10/32")

    async def parked() -> list[Any]:
        return await site.running.log.database.read(lambda conn: read_runs(conn, statuses=[RunStatus.PARKED]))

    await until(parked, "the answer to be refused")
    (run,) = await parked()
    assert "a client at 10.77.60.10, which its own RemoteAddressClaim/onprem-10-77-60-10 captures" in run.error
    assert await site.ids() == ["q1"]
    assert await site.running.log.database.read(read_parts) == []


async def test_what_a_peer_observed_there_is_taken(sites: MakeSites, tmp_path: Path) -> None:
    """The capture is there because of the peer's report: refusing the next one would let it lapse."""
    here, there = sites("here", "there")
    for site in (here, there):
        await site.start()
    await capture(here, tmp_path)
    there.secret.write_text(here.secret.read_text())
    await there.join(here)
    await there.emit("seen-again", type=OBSERVED, subject="10.77.60.10/32")
    await here.holds("seen-again")


async def test_a_claim_that_cannot_be_read_refuses_every_report(site: Site, tmp_path: Path) -> None:
    await capture(site, tmp_path, "not an address")
    with pytest.raises(SelfCapture, match="captures an address that cannot be read"):
        await site.emit("own", type=OBSERVED, subject="10.77.60.11/32")
    assert await site.ids() == ["remote"]
