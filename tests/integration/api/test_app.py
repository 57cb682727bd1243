"""The API from the client's side: its answers, its access rules, and that no request makes it fail."""

from __future__ import annotations

import gzip
import json
import logging

import pytest

from eventd.api.bodies import bodies
from eventd.observe.metrics import METRICS_CONTENT_TYPE
from tests.integration.api.conftest import Api, StartApi

ECHO = "/api/v1/groups/edge/echo"
JSON = {"Content-Type": "application/json"}


def code(told: object) -> str:
    assert isinstance(told, dict)
    assert set(told) == {"error"}
    assert set(told["error"]) <= {"code", "message", "hint", "detail"}
    return str(told["error"]["code"])


# --- operations --------------------------------------------------------------------------------------------------


async def test_an_operation_takes_path_and_query(api: Api) -> None:
    status, told, headers = await api.ask("GET", f"{ECHO}?limit=5&type=a&type=b")
    assert (status, told) == (200, {"head": 0, "group": "edge", "limit": 5, "type": ["a", "b"], "data": {}})
    assert headers["Server"] == "routerd-eventd"
    assert headers["Cache-Control"] == "no-store"


async def test_an_operation_takes_a_json_body(api: Api) -> None:
    status, told, _ = await api.ask("POST", ECHO, json={"limit": 7, "data": {"ä": [1, None]}})
    assert status == 200
    assert (told["limit"], told["data"]) == (7, {"ä": [1, None]})


async def test_a_body_may_be_absent(api: Api) -> None:
    assert (await api.ask("POST", ECHO))[0] == 200


async def test_a_group_may_be_percent_encoded(api: Api) -> None:
    _, told, _ = await api.ask("GET", "/api/v1/groups/a%20b/echo")
    assert told["group"] == "a b"


WRONG_FIELDS: list[tuple[str, dict[str, str]]] = [
    (f"{ECHO}?limit=x", {"limit": "must be a whole number, not 'x'"}),
    (f"{ECHO}?limit=1&limit=2", {"limit": "is given twice"}),
    (f"{ECHO}?limt=1", {"limt": "is not a field of this request, did you mean limit?"}),
    (f"{ECHO}?group=core", {"group": "is given twice, with different values"}),
    (f"{ECHO}?type=%00", {"type[0]": "must not contain the character U+0000"}),
    (f"{ECHO}?limit=99999999999999999999999", {"limit": "must be at most 100, not '99999999999999999999999'"}),
    ("/api/v1/groups/a%00b/echo", {"group": "must not contain the character U+0000"}),
]


async def test_a_wrong_field_is_named(api: Api) -> None:
    for path, fields in WRONG_FIELDS:
        status, told, _ = await api.ask("GET", path)
        assert (status, told["error"]["code"], told["error"]["detail"]) == (
            400,
            "invalid_params",
            {"fields": fields},
        ), path


WRONG_BODIES: list[tuple[bytes, str]] = [
    (b"{", "the body is not valid JSON: Input data was truncated"),
    (b"{} {}", "the body is not valid JSON: trailing characters (byte 4)"),
    (b'{"limit":NaN}', "the body is not valid JSON"),
    (b'{"data":{"x":"\\ud800"}}', "the body is not valid JSON"),
    (b'{"data":{"x":"\xff"}}', "the body is not valid JSON"),
    (b"[1]", "the body must be a JSON object"),
    (b"null", "the body must be a JSON object"),
    (b"[" * 100_000, "the body is nested more than 64 levels deep"),
    (b'{"data":{"x":"\\u0000"}}', "data.x must not contain the character U+0000"),
    (b'{"limit":' + b"9" * 400 + b"}", ""),
]


async def test_a_body_that_is_no_json_object_is_told_apart(api: Api) -> None:
    for body, why in WRONG_BODIES:
        status, told, _ = await api.ask("POST", ECHO, data=body, headers=JSON)
        assert (status, code(told)) in ((400, "invalid_request"), (400, "invalid_params")), body[:60]
        assert told["error"]["message"].startswith(why), body[:60]


async def test_a_body_of_another_kind_is_refused(api: Api) -> None:
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]:
        status, told, _ = await api.ask("POST", ECHO, data=b"{}", headers={"Content-Type": kind})
        assert (status, code(told)) == (415, "unsupported_media_type"), kind


async def test_utf8_may_be_said(api: Api) -> None:
    headers = {"Content-Type": "application/json; charset=UTF-8"}
    assert (await api.ask("POST", ECHO, data=b"{}", headers=headers))[0] == 200


async def test_a_body_over_the_limit_is_refused_also_when_it_was_packed(start_api: StartApi) -> None:
    api = await start_api(max_body_bytes=10_000)
    large = json.dumps({"data": {"x": "y" * 20_000}}).encode()
    for body, headers in ((large, JSON), (gzip.compress(large), {**JSON, "Content-Encoding": "gzip"})):
        status, told, _ = await api.ask("POST", ECHO, data=body, headers=headers)
        assert (status, code(told)) == (413, "too_large")
        assert "EVENTD_MAX_BODY_BYTES" in told["error"]["hint"]


async def test_a_body_that_is_packed_wrongly_is_a_bad_request(api: Api) -> None:
    status, told, _ = await api.ask("POST", ECHO, data=b"no gzip", headers={**JSON, "Content-Encoding": "gzip"})
    assert (status, code(told)) == (400, "invalid_request")


async def test_a_body_that_does_not_arrive_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
    head = f"POST {ECHO} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
    answer = await api.raw(head.encode(), until=b"}}\n")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Connection: close" in answer
    assert b'"code":"slow_body"' in answer


# --- errors ------------------------------------------------------------------------------------------------------


async def test_what_is_not_served_is_told_in_the_same_shape(api: Api) -> None:
    status, told, _ = await api.ask("GET", "/api/v1/nothing")
    assert (status, code(told), told["error"]["message"]) == (
        404,
        "no_such_route",
        "nothing is served at /api/v1/nothing",
    )


async def test_another_method_is_told_which_are_allowed(api: Api) -> None:
    status, told, headers = await api.ask("DELETE", ECHO)
    assert (status, code(told), headers["Allow"]) == (405, "method_not_allowed", "GET, POST")
    assert told["error"]["hint"] == "use GET, POST"


async def test_what_an_operation_raises_is_answered(api: Api) -> None:
    for path, status, error_code, waits in [
        ("all", 409, "conflict", False),
        ("full", 507, "full", False),
        ("down", 503, "database_unavailable", True),
    ]:
        found, told, headers = await api.ask("GET", f"/api/v1/{path}")
        assert (found, code(told), headers.get("Retry-After") == "1") == (status, error_code, waits), path


async def test_a_fault_of_the_node_is_an_incident_in_its_log_and_no_traceback(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="eventd.api"):
        status, told, headers = await api.ask("GET", "/api/v1/bug")
    assert (status, code(told)) == (500, "internal")
    assert "geheim" not in json.dumps(told)
    assert "Traceback" not in json.dumps(told)
    (logged,) = caplog.records
    assert vars(logged)["incident"] in told["error"]["message"]
    assert vars(logged)["route"] == "GET /api/v1/bug"
    assert vars(logged)["request"] == headers["X-Request-Id"]


async def test_the_log_names_the_pattern_and_not_the_path(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="eventd.api"):
        await api.ask("GET", "/api/v1/down?")
    assert [vars(logged)["route"] for logged in caplog.records] == ["GET /api/v1/down"]


# --- keys --------------------------------------------------------------------------------------------------------


def bearer(key: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


async def test_with_keys_everything_but_health_needs_one(start_api: StartApi) -> None:
    api = await start_api("k:r")
    for path in [ECHO, "/metrics", "/api/v1/nothing", "/"]:
        status, told, headers = await api.ask("GET", path)
        assert (status, code(told), headers["WWW-Authenticate"]) == (401, "unauthorized", "Bearer"), path
        for probe in ("/healthz", "/readyz"):
            assert (await api.ask("GET", probe))[0] == 200, path


async def test_an_unknown_key_is_refused(start_api: StartApi) -> None:
    api = await start_api("k")
    status, told, _ = await api.ask("GET", ECHO, **bearer("other"))
    assert (status, told["error"]["message"]) == (401, "this key is not known")


async def test_a_scope_is_needed(start_api: StartApi) -> None:
    api = await start_api("r:read,w:write,x:delete")
    assert (await api.ask("GET", ECHO, **bearer("r")))[0] == 200
    assert (await api.ask("POST", ECHO, **bearer("w")))[0] == 200
    status, told, _ = await api.ask("POST", ECHO, **bearer("r"))
    assert (status, told["error"]["message"]) == (403, "this key lacks the scope write")
    assert (await api.ask("GET", "/metrics", **bearer("r")))[0] == 200
    assert (await api.ask("GET", "/metrics", **bearer("x")))[0] == 403


async def test_a_key_for_some_groups_is_held_to_them(start_api: StartApi) -> None:
    api = await start_api("k::ed")
    assert (await api.ask("GET", ECHO, **bearer("k")))[0] == 200
    for path in ("/api/v1/groups/core/echo", "/api/v1/groups/%63ore/echo", "/api/v1/all"):
        status, told, _ = await api.ask("GET", path, **bearer("k"))
        assert (status, code(told)) == (403, "forbidden")


async def test_a_key_for_some_groups_sees_their_figures_alone(start_api: StartApi) -> None:
    api = await start_api("k::ed,all")
    api.metrics.head(42)
    for group in ("edge", "core", "x-edge"):
        api.metrics.accepted(group, "b", 3, 0)
        api.metrics.delivered(group, "b", 1, 100, 0.5)
        api.metrics.connections(group, 1)
    status, text, headers = await api.ask("GET", "/metrics", **bearer("k"))
    assert (status, headers["Content-Type"]) == (200, METRICS_CONTENT_TYPE)
    series = [told for told in text.splitlines() if not told.startswith("#")]
    assert series
    assert all('{group="edge"' in told for told in series)
    for name in ("receiver_accepted_total", "outbox_delivery_lag_seconds_bucket", "listener_connections"):
        assert f'routerd_eventd_{name}{{group="edge"' in text
    whole = (await api.ask("GET", "/metrics", **bearer("all")))[1]
    assert set(series) < set(whole.splitlines())
    assert "routerd_eventd_log_head_position 42.0" in whole


async def test_readiness_tells_of_groups_whom_they_concern(start_api: StartApi) -> None:
    api = await start_api("k::ed,all")
    api.checks.update({"group edge": "ok", "group core": "cannot read /etc/core.key"})
    for key, told in {
        "all": {"database": "ok", "group edge": "ok", "group core": "cannot read /etc/core.key"},
        "k": {"database": "ok", "group edge": "ok", "groups": "not ready"},
        "unknown": {"database": "ok", "groups": "not ready"},
    }.items():
        assert (await api.ask("GET", "/readyz", **bearer(key)))[:2] == (503, {"status": "not ready", "checks": told})
    assert (await api.ask("GET", "/readyz"))[1]["checks"] == {"database": "ok", "groups": "not ready"}
    del api.checks["group core"]
    assert (await api.ask("GET", "/readyz"))[1]["checks"] == {"database": "ok", "groups": "ok"}


async def test_the_scope_is_asked_before_the_body_is_read(start_api: StartApi) -> None:
    api = await start_api("r:read")
    status, _, _ = await api.ask("POST", ECHO, data=b"{", headers={**JSON, "Authorization": "Bearer r"})
    assert status == 403


async def test_without_keys_the_api_answers_to_names_of_this_machine_only(start_api: StartApi) -> None:
    api = await start_api()
    status, told, _ = await api.ask("GET", ECHO, headers={"Host": "evil.example"})
    assert (status, code(told)) == (403, "forbidden")
    assert (await api.ask("GET", ECHO, headers={"Host": "localhost:1"}))[0] == 200
    assert (await api.ask("GET", "/healthz", headers={"Host": "evil.example"}))[0] == 200
    keyed = await start_api("k")
    assert (await keyed.ask("GET", ECHO, headers={"Host": "node.example", "Authorization": "Bearer k"}))[0] == 200


async def test_without_keys_a_page_of_another_origin_is_refused(start_api: StartApi) -> None:
    """A browser sends a request without a body for any page, and nothing else would tell it from the operator's."""
    api = await start_api()
    for origin in ("https://evil.example", "null", f"http://localhost:{api.port}", f"http://127.0.0.1:{api.port + 1}"):
        status, told, _ = await api.ask("POST", ECHO, headers={"Origin": origin})
        assert (status, code(told)) == (403, "forbidden"), origin
    assert (await api.ask("POST", ECHO, headers={"Origin": f"http://127.0.0.1:{api.port}"}))[0] == 200
    null = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
    assert (await api.ask("POST", ECHO, headers=null))[0] == 200, "a form of the console, whose pages send no referrer"
    for site in ("cross-site", "same-site", "none"):
        assert (await api.ask("POST", ECHO, headers={**null, "Sec-Fetch-Site": site}))[0] == 403, site
    assert (await api.ask("POST", ECHO))[0] == 200
    keyed = await start_api("k")
    headers = {"Origin": "https://ui.example", "Authorization": "Bearer k"}
    assert (await keyed.ask("POST", ECHO, headers=headers))[0] == 200


# --- health ------------------------------------------------------------------------------------------------------


async def test_health(api: Api) -> None:
    status, told, _ = await api.ask("GET", "/healthz")
    assert (status, told["status"], told["version"]) == (200, "ok", "1.2.3")
    assert isinstance(told["uptime_ms"], int)
    assert (await api.ask("HEAD", "/healthz"))[0] == 200


async def test_readiness_names_what_is_wrong(api: Api) -> None:
    assert (await api.ask("GET", "/readyz"))[:2] == (200, {"status": "ready", "checks": {"database": "ok"}})
    api.checks["group edge"] = "the secret file is missing"
    status, told, headers = await api.ask("GET", "/readyz")
    assert (status, told["status"], headers["Retry-After"]) == (503, "not ready", "1")
    assert told["checks"] == {"database": "ok", "group edge": "the secret file is missing"}


async def test_probes_have_a_line_for_each_check_if_they_are_asked_for(start_api: StartApi) -> None:
    api = await start_api("k::ed")
    alive = (200, "[+]loop ok\nhealthz passed\n")
    assert (await api.ask("GET", "/healthz?verbose"))[:2] == (await api.ask("GET", "/healthz?verbose=1"))[:2] == alive
    assert (await api.ask("GET", "/healthz?verbose=false"))[1]["status"] == "ok"
    assert (await api.ask("GET", "/readyz?verbose"))[:2] == (200, "[+]database ok\nreadyz passed\n")
    api.checks.update({"group edge": "two\nlines", "group core": "cannot read a key"})
    status, text, headers = await api.ask("GET", "/readyz?verbose&standby=ok", **bearer("k"))
    assert (status, headers["Retry-After"], headers["Content-Type"]) == (503, "1", "text/plain; charset=utf-8")
    assert text == "[+]database ok\n[-]group edge: two\\nlines\n[-]groups: not ready\nreadyz failed\n"


async def test_metrics(api: Api) -> None:
    api.metrics.head(42)
    status, text, headers = await api.ask("GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "routerd_eventd_log_head_position 42.0" in text
    assert "process_resident_memory_bytes" in text


# --- what is no HTTP ---------------------------------------------------------------------------------------------


async def test_what_is_no_http_is_refused_and_the_next_is_served(api: Api) -> None:
    for request_bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"hello\r\n\r\n",
    ]:
        answer = await api.raw(request_bytes)
        assert b" 400 " in answer.splitlines()[0], request_bytes
        assert (await api.ask("GET", "/healthz"))[0] == 200, request_bytes


async def test_headers_without_end_are_refused(api: Api) -> None:
    answer = await api.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n")
    assert b" 400 " in answer.splitlines()[0]
