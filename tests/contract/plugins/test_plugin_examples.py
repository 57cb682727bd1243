"""The example plugins of the documentation do what their pages say."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventd.plugins.contract.contract import Outcome
from eventd.plugins.run.check import Checking, undeclared
from eventd.plugins.run.plugins import Plugins
from eventd.resources.plugin_configuration import PluginConfig, plugins
from eventd.resources.reading.documents import load_text
from eventd.resources.validation.check import check
from eventd.runtime.clock import SystemClock
from eventd.store.rows.registry import StoredResource
from eventd.testing import event
from tests.support.plugins import SECOND, install_project, manual_request
from tests.support.source import ROOT

EXAMPLES = ROOT / "docs" / "examples"
NAMES = sorted(file.parent.name for file in EXAMPLES.glob("*/plugin.yaml"))
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
OBSERVED = "routerd.client.ipv4.observed"
EDGE = (
    "apiVersion: federation.routerd.net/v1alpha1\nkind: EventGroup\nmetadata: {name: edge}\nspec: {nodeName: onprem}\n"
)


def declared(name: str) -> list[StoredResource]:
    """What the example's plugin.yaml declares, checked as apply does."""
    text = f"{EDGE}---\n{(EXAMPLES / name / 'plugin.yaml').read_text()}"
    resources = check(load_text("plugin.yaml", text), []).accepted()
    return [
        StoredResource(one.identity.api_version, one.identity.kind, one.name, {}, one.canonical(), 1, 0, 0)
        for one in resources
    ]


def configured(name: str, folder: Path) -> PluginConfig:
    """The example's plugin, as if it were installed."""
    [config] = plugins(declared(name)).values()
    if config.entry_point:
        return replace(config, env=(("PYTHONPATH", install_project(EXAMPLES / name, folder)),))
    if shutil.which("jq") is None:
        pytest.skip("the script needs jq")
    return replace(config, executable=str(EXAMPLES / name / Path(config.executable).name))


@pytest.fixture
async def running() -> AsyncIterator[Plugins]:
    plugins = Plugins(SystemClock(), environment=PATH)
    yield plugins
    await plugins.close()


async def run(running: Plugins, name: str, folder: Path, *events: Any) -> Outcome:
    return await running.run(configured(name, folder), manual_request(events=events))


def test_every_example_is_in_the_list_and_can_be_declared() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert len(NAMES) == 3
    for name in NAMES:
        assert f"| [{name}]({name}/" in page
        assert [row.kind for row in declared(name)][:3] == ["EventGroup", "Plugin", "EventSubscription"]


@pytest.mark.parametrize("name", NAMES)
async def test_every_example_keeps_the_contract(running: Plugins, tmp_path: Path, name: str) -> None:
    config = configured(name, tmp_path)
    checking = Checking(running, config, SystemClock(), PATH)
    verdicts = [verdict async for verdict in checking.run()]
    assert [verdict for verdict in verdicts if verdict.state == "failed"] == []
    assert undeclared(name, entry_point=name).capabilities >= config.capabilities


async def test_clients_become_claims(running: Plugins, tmp_path: Path) -> None:
    said = {"address": "10.88.60.9/32", "domain": "home", "peerRef": "north"}
    outcome = await run(
        running,
        "remote-claims",
        tmp_path,
        event("e1", type=OBSERVED, subject="10.88.60.9/32"),
        event("e2", type=OBSERVED, subject="client 9", payload=said),
        event("e3", type=OBSERVED, subject="fd00::9/128", payload={"ownerSide": "cloud"}),
        event("e4", type=OBSERVED, subject=""),
        event("e5", type="routerd.client.ipv4.expired", subject="10.88.60.10/32"),
    )
    claims = {found["metadata"]["name"]: found["spec"] for found in outcome.result.resources}
    assert list(claims) == ["onprem-10-88-60-9", "cloud-fd00--9"]
    assert claims["onprem-10-88-60-9"] == {
        "domainRef": "home",
        "address": "10.88.60.9/32",
        "ownerSide": "onprem",
        "capture": {
            "type": "provider-secondary-ip",
            "providerRef": "example-provider",
            "nicRef": "example-nic-ref",
            "configureOSAddress": False,
        },
        "delivery": {"peerRef": "north", "mode": "route", "tunnelInterface": "wg-hybrid"},
    }
    assert outcome.result.ttl == 1800 * SECOND


async def test_a_gateway_that_is_down_masks_its_route_and_says_so(running: Plugins, tmp_path: Path) -> None:
    def state(event_id: str, gateway: str, state: str) -> Any:
        return event(event_id, type="gateway.state", subject=gateway, payload={"state": state})

    told = [
        state("1", "north", "up"),
        state("2", "south", "down"),
        state("3", "north", "down"),
        state("4", "south", "up"),
    ]
    outcome = await run(running, "gateway-watch", tmp_path, *told)
    assert outcome.result.resources == []
    assert outcome.result.directives == [
        {
            "op": "mask",
            "target": {"apiVersion": "net.example/v1", "kind": "IPv4Route", "name": "via-north"},
            "reason": "north is down",
        }
    ]
    assert outcome.result.events == [
        {
            "type": "route.masked",
            "message": "the route via north is masked",
            "attributes": {"because": "3"},
            "subject": "north",
        }
    ]


async def test_clients_become_routes(running: Plugins, tmp_path: Path) -> None:
    events = [event("e1", type=OBSERVED, subject="10.88.60.9/32"), event("e2", type=OBSERVED, subject="the cat")]
    outcome = await run(running, "client-routes", tmp_path, *events)
    assert outcome.result.resources == [
        {
            "apiVersion": "net.example/v1",
            "kind": "IPv4Route",
            "metadata": {
                "name": "client-10-88-60-9",
                "annotations": {"routerd.net/for-subject": "10.88.60.9/32"},
            },
            "spec": {"destination": "10.88.60.9/32", "gateway": "10.99.0.6"},
        }
    ]
