"""Events over HTTP: a payload is a file that a browser saves, and a key finds events in its own groups only."""

from __future__ import annotations

from eventd.api.routes import OPERATIONS
from tests.integration.api.conftest import Api, StartApi

ALL, SOME = "admin-key-00000001", "groups-key-0000001"
GROUP = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: %s}
spec: {nodeName: a}
"""


async def started(start_api: StartApi) -> Api:
    """The API with the groups edge and core, each with an event e/1."""
    api = await start_api(f"{ALL},{SOME}:read:core", operations=(*OPERATIONS.values(),))
    admin = {"Authorization": f"Bearer {ALL}"}
    text = "---".join(GROUP % name for name in ("edge", "core"))
    sources = {"sources": [{"name": "groups.yaml", "text": text}]}
    assert (await api.ask("POST", "/api/v1/resources/apply", json=sources, headers=admin))[0] == 200
    for name in ("edge", "core"):
        events = {"events": [{"type": "t", "id": "e/1", "payload": {"n": "9007199254740993"}}]}
        status, _, _ = await api.ask("POST", f"/api/v1/groups/{name}/events", json=events, headers=admin)
        assert status == 200
    return api


async def test_a_payload_is_sent_as_an_attachment(start_api: StartApi) -> None:
    api = await started(start_api)
    path = "/api/v1/groups/core/events/e%2F1/payload"
    status, body, headers = await api.ask("GET", path, headers={"Authorization": f"Bearer {SOME}"})
    assert (status, body) == (200, '{"n":"9007199254740993"}')
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''e%2F1.json"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_key_for_some_names_finds_events_in_its_groups_only(start_api: StartApi) -> None:
    api = await started(start_api)
    for key, groups in ((ALL, ["core", "edge"]), (SOME, ["core"])):
        status, answer, _ = await api.ask("GET", "/api/v1/events/e%2F1", headers={"Authorization": f"Bearer {key}"})
        assert status == 200
        assert [one["group"] for one in answer["groups"]] == groups
    limited = {"Authorization": f"Bearer {SOME}"}
    assert (await api.ask("GET", "/api/v1/groups/edge/search", headers=limited))[0] == 403
    assert (await api.ask("GET", "/api/v1/groups/edge/events/e%2F1", headers=limited))[0] == 403
