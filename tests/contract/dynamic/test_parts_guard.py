"""A node does not report the addresses that it captures itself as clients."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.dynamic.guard import OBSERVED, SelfCapture, refuse_captured
from eventd.dynamic.part import form_part
from eventd.plugins.contract.contract import Result
from eventd.store.engine.database import Database
from eventd.store.parts.parts import put_part, withdraw
from eventd.store.rows.registry import announce, delete_resource, put_resource
from eventd.testing import NOW, event

HYBRID = "hybrid.routerd.net/v1alpha1"
HOUR = 3600_000_000
OWNER = "EventSubscription/claims"


def claim(address: str, how: str = "proxy-arp") -> dict[str, Any]:
    spec = {"address": address, "capture": {"type": how}}
    return {"apiVersion": HYBRID, "kind": "RemoteAddressClaim", "metadata": {"name": "c"}, "spec": spec}


def give(database: Database, resource: dict[str, Any]) -> str:
    result = Result(observed_at=NOW, ttl=HOUR, resources=[resource])
    part = form_part(
        owner=OWNER, events=[event("e1", subject="s")], result=result, plugin="p", clamp=False, grace=9, now=NOW
    )
    database.write_now(put_part, part, NOW)
    return part.source


def declare(database: Database, resource: dict[str, Any]) -> None:
    def put(conn: Any) -> None:
        put_resource(
            conn,
            api_version=HYBRID,
            kind="RemoteAddressClaim",
            name="c",
            annotations={},
            spec=resource["spec"],
            now=NOW,
        )
        announce(conn)

    database.write_now(put)


def report(database: Database, subject: str, *, now: int = NOW, type: str = OBSERVED, **payload: str) -> None:
    database.read_now(refuse_captured, [("other", "10.77.60.10", {}), (type, subject, payload)], now)


CAPTURED: list[tuple[str, dict[str, str]]] = [
    ("10.77.60.10", {}),
    ("10.77.60.10/32", {}),
    (" 10.77.60.10/24", {}),
    ("::ffff:10.77.60.10", {}),
    ("::FFFF:0A4D:3C0A/128", {}),
    ("010.077.060.010", {}),
    ("::ffff:10.77.060.10/96", {}),
    ("10.77.60.10/99", {}),
    ("10.77.60.10 / 32", {}),
    ("10.77.60.10%eth0", {}),
    ("10.77.60.11", {"address": "10.77.60.10"}),
    ("10.77.60.10", {"address": "no address"}),
    ("10.77.60.10", {"address": ""}),
]


def test_a_captured_address_is_refused_however_it_is_written(database: Database) -> None:
    source = give(database, claim("10.77.60.10/32"))
    said = f"^10.77.60.10 is captured by RemoteAddressClaim/c of {source}: it is not a client of this node$"
    for subject, payload in CAPTURED:
        with pytest.raises(SelfCapture, match=said) as caught:
            report(database, subject, **payload)
        assert caught.value.code == "self_capture", (subject, payload)


FREE: list[tuple[str, dict[str, str], str]] = [
    ("10.77.60.11", {}, OBSERVED),
    ("10.77.60.10", {"address": "10.77.60.11"}, OBSERVED),
    ("10.77.60.10", {}, "routerd.client.ipv4.expired"),
    ("no address", {}, OBSERVED),
    ("10.77.60.100", {}, OBSERVED),
    ("10.77.60.10.", {}, OBSERVED),
    ("...", {}, OBSERVED),
    ("", {}, OBSERVED),
]


def test_everything_else_passes(database: Database) -> None:
    give(database, claim("10.77.60.10/32"))
    for subject, payload, type in FREE:
        report(database, subject, type=type, **payload)


def test_a_claim_that_captures_nothing_refuses_nothing(database: Database) -> None:
    for how in ["", "  "]:
        give(database, claim("10.77.60.10", how))
        declare(database, claim("10.77.60.10", how))
        report(database, "10.77.60.10")


def test_a_capture_of_another_shape_is_one(database: Database) -> None:
    for capture in [{"type": 5}, {"type": ["proxy-arp"]}, "proxy-arp", True]:
        resource = claim("10.77.60.10")
        resource["spec"]["capture"] = capture
        give(database, resource)
        with pytest.raises(SelfCapture, match=r"^10\.77\.60\.10 is captured"):
            report(database, "10.77.60.10")


def test_each_captured_address_of_a_batch_is_named_by_the_place_of_its_event(database: Database) -> None:
    give(database, claim("10.77.60.10"))
    reports = [(OBSERVED, subject, {}) for subject in ("10.77.60.10", "10.77.60.11", "10.77.60.10/24")]
    reports.insert(1, ("other", "10.77.60.10", {}))
    with pytest.raises(SelfCapture) as caught:
        database.read_now(refuse_captured, reports, NOW)
    assert [problem["index"] for problem in caught.value.detail] == [0, 3]
    assert {problem["message"] for problem in caught.value.detail} == {caught.value.message}


def test_a_capture_that_has_ended_refuses_nothing(database: Database) -> None:
    give(database, claim("10.77.60.10"))
    with pytest.raises(SelfCapture):
        report(database, "10.77.60.10", now=NOW + HOUR - 1)
    report(database, "10.77.60.10", now=NOW + HOUR)
    database.write_now(withdraw, OWNER, ["s"], NOW)
    with pytest.raises(SelfCapture):
        report(database, "10.77.60.10", now=NOW + 8)
    report(database, "10.77.60.10", now=NOW + 9)


def test_a_declared_capture_refuses_until_it_is_deleted(database: Database) -> None:
    report(database, "10.77.60.10")
    declare(database, claim("10.77.60.10"))
    with pytest.raises(SelfCapture, match=r"^10\.77.60.10 is captured by RemoteAddressClaim/c: it is not a client"):
        report(database, "10.77.60.10")

    def delete(conn: Any) -> None:
        delete_resource(conn, api_version=HYBRID, kind="RemoteAddressClaim", name="c")
        announce(conn)

    database.write_now(delete)
    report(database, "10.77.60.10")


def test_a_capture_that_cannot_be_read_refuses_every_report_and_says_how_to_end_that(database: Database) -> None:
    source = give(database, claim("10.77.60.300"))
    with pytest.raises(SelfCapture, match="captures an address that cannot be read; it might be this one") as caught:
        report(database, "10.1.1.1")
    assert caught.value.hint == f"routerctl dynamic delete {source}"
    report(database, "not an address")
    report(database, "10.1.1.1", type="other")


def test_a_declared_one_that_cannot_be_read_does_too(database: Database) -> None:
    declare(database, claim(""))
    with pytest.raises(SelfCapture, match="RemoteAddressClaim/c captures an address that cannot be read") as caught:
        report(database, "10.1.1.1")
    assert caught.value.hint == "routerctl delete RemoteAddressClaim c"
