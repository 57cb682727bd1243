"""The most frequent mistakes of operators, and that the error they read says what to do."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from eventd.groups.link_remedies import REMEDIES
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.sites import Site


async def _pair(sites: MakeSites, **flags: Any) -> tuple[Site, Site]:
    """a and b with one secret, neither of them a peer of the other so far."""
    a, b = sites("a", "b")
    await a.start()
    await b.start(**flags)
    b.secret.write_text(a.secret.read_text())
    await a.join()
    await b.join()
    await a.emit("e1")
    return a, b


async def _doctor(site: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    """The check of the link, and the action about it."""
    answer = await site.ask("doctor.examine", remediationPlan=True)
    (check,) = [check for check in answer["checks"] if check.get("code") == "link-blocked"]
    (action,) = [each for each in answer["remediationPlan"]["actions"] if "remedy" in each]
    return check, action


@pytest.mark.parametrize(("protocol", "keys"), [("auto", ""), ("v1", "secret-key:read"), ("v2", "")])
async def test_an_endpoint_that_is_the_port_of_the_api_is_named(sites: MakeSites, protocol: str, keys: str) -> None:
    a, b = await _pair(sites, **({"api_keys": keys} if keys else {}))
    assert b.running.api_address is not None
    await a.apply(peer("b", b.running.api_address[1], protocol=protocol))
    cursor = await a.in_state("b", "blocked", "not_a_listener")
    assert cursor.last_error == (
        f"http://127.0.0.1:{b.running.api_address[1]} is a node's API and not a peer listener: use the port of "
        "`spec.listen` of its EventGroup"
    )
    check, action = await _doctor(a)
    assert check["remedy"] == action["remedy"] == REMEDIES["not_a_listener"].words
    assert (action["action"], action["safe"]) == ("correct-peer-endpoint", False)
    await a.apply(peer("b", b.port, protocol=protocol))
    await b.holds("e1")
    assert (await a.link("b"))["lastError"] == ""


async def test_an_endpoint_with_a_path_that_is_not_served_is_named(sites: MakeSites) -> None:
    path = "/v1/events"
    a, b = await _pair(sites)
    await a.apply(peer("b", b.port, endpoint=f"http://127.0.0.1:{b.port}{path}"))
    cursor = await a.in_state("b", "blocked", "wrong_path")
    assert cursor.last_error.endswith(f"the endpoint has the path {path!r}, but a peer serves its paths at the root:"
                                      " leave the path out")  # fmt: skip
    assert (await _doctor(a))[1]["remedy"] == REMEDIES["wrong_path"].words


@pytest.mark.parametrize("protocol", ["v1", "v2"])
async def test_a_signature_that_is_refused_is_logged_with_its_sender(
    sites: MakeSites, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await _pair(sites)
    b.secret.write_text("another secret of the same length\n")
    await b.running.reload()
    with caplog.at_level(logging.WARNING, "eventd.ingress"):
        await a.apply(peer("b", b.port, protocol=protocol))
        await a.in_state("b", "blocked")
    (record,) = [record for record in caplog.records if record.message == "peer request refused"]
    assert (vars(record)["reason"], vars(record).get("code")) == (
        "bad_signature",
        "unauthorized" if protocol == "v2" else None,
    )
    assert (vars(record)["address"], vars(record)["claimed_node"]) == ("127.0.0.1", "a")
    assert vars(record).get("key_id", "") == ("shared" if protocol == "v2" else "")
    check, action = await _doctor(a)
    if protocol == "v2":
        assert "sha256sum" in check["remedy"]
        assert action["action"] == "align-keys"


async def test_what_a_request_says_of_its_sender_cannot_forge_the_log(sites: MakeSites) -> None:
    from eventd.ingress.claimed_sender import Sender, sender_of_v1

    told = Sender("::1", 'b"\nlevel=error' + "x" * 1000, "k\x1b[2J").show()
    assert told["claimed_node"].startswith('b"?level=error')
    assert (len(told["claimed_node"]), told["key_id"]) == (253, "k?[2J")
    assert sender_of_v1(b'{"sourceNode": 5}', "::1") == Sender("::1")
    assert sender_of_v1(None, "::1").show() == {"address": "::1"}
