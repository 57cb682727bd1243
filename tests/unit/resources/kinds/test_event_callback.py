from __future__ import annotations

from typing import Any

import pytest

from eventd.resources.apply import Action, plan
from eventd.resources.callback_configuration import CallbackConfig, CallbackKeyConfig, callbacks
from eventd.resources.kinds.registry import EVENT_CALLBACK, find_kind
from eventd.tls.files import ClientTlsConfig
from federation.selector import Selector
from tests.unit.resources.samples import CALLBACK, GROUP, accepted, callback, problems, row, rows

STORED = rows(GROUP)
HOUR = 3_600_000_000

EVERY_FIELD = """\
match: {types: ["client.*", b], subjectPrefixes: [x], payload: {k: v}, sourceNodes: [n]}
format: batch
from: earliest
batch: {maxEvents: 500, window: 2s, maxBytes: 4MiB}
signing:
  keys:
    - {id: b-2026, state: active, secretFile: "credential:billing.key"}
    - {id: b-2025, state: retiring, secretFile: /etc/old.key}
auth: {username: eventd, passwordFile: /etc/password}
headers: {x-env: prod, X-Empty: ""}
tls: {caFile: /etc/ca.crt, clientCertFile: /etc/own.crt, clientKeyFile: /etc/own.key}
limits: {timeout: 10s, connectTimeout: 500ms, perSecond: 50, inFlight: 4}
retry: {baseBackoff: 2s, maxBackoff: 1m, isolateAfter: 3}
disableAfter: 24h
hold: 1h
"""


def found(text: str) -> list[str]:
    return problems(text, STORED)


def config(text: str) -> CallbackConfig:
    return callbacks([*STORED, *map(row, accepted(text, STORED))])["billing"]


def effective(text: str) -> dict[str, Any]:
    [resource] = accepted(text, STORED)
    return resource.effective()


@pytest.mark.parametrize(
    "word", ["callback", "callbacks", "webhook", "webhooks", "ec", "eventcallbacks", "EventCallback"]
)
def test_the_kind_has_short_names(word: str) -> None:
    assert find_kind(word) is EVENT_CALLBACK


# --- what is accepted -----------------------------------------------------------------------------------------------


def test_the_smallest_callback_has_every_default() -> None:
    assert effective(CALLBACK) == {
        "source": {"groupRef": "edge", "topic": ""},
        "match": {"types": ["*"], "subjectPrefixes": [], "payload": {}, "sourceNodes": []},
        "url": "https://billing.example/hooks",
        "format": "standard",
        "from": "now",
        "batch": {"maxEvents": 1, "window": "0s", "maxBytes": "1MiB"},
        "signing": {"keys": []},
        "auth": {"username": "", "passwordFile": "", "bearerFile": ""},
        "headers": {},
        "tls": {"caFile": "", "clientCertFile": "", "clientKeyFile": ""},
        "allowPlain": False,
        "limits": {"timeout": "20s", "connectTimeout": "5s", "perSecond": 0, "inFlight": 1},
        "retry": {"baseBackoff": "1s", "maxBackoff": "10m0s", "isolateAfter": 5},
        "disableAfter": "120h0m0s",
        "hold": "168h0m0s",
    }


def test_the_configuration_of_the_smallest_callback() -> None:
    told = config(CALLBACK)
    assert (told.name, told.group, told.topic, told.url) == (
        "billing",
        "edge",
        "group:edge",
        "https://billing.example/hooks",
    )
    assert told.selector.matches_all
    assert (told.format, told.from_earliest) == ("standard", False)
    assert (told.max_events, told.window, told.max_bytes) == (1, 0, 1 << 20)
    assert (told.keys, told.username, told.password_file, told.bearer_file, told.headers) == ((), "", "", "", ())
    assert told.tls == ClientTlsConfig()
    assert (told.timeout, told.connect_timeout, told.per_second, told.in_flight) == (20.0, 5.0, None, 1)
    assert (told.backoff.base, told.backoff.cap, told.isolate_after) == (1.0, 600.0, 5)
    assert (told.disable_after, told.hold) == (120 * HOUR, 168 * HOUR)


def test_what_is_written_takes_effect() -> None:
    told = config(callback(EVERY_FIELD))
    assert told.selector == Selector.of(
        types=["b", "client.*"], subject_prefixes=["x"], sources=["n"], payload={"k": "v"}
    )
    assert (told.format, told.from_earliest) == ("batch", True)
    assert (told.max_events, told.window, told.max_bytes) == (500, 2_000_000, 4 << 20)
    assert told.keys == (
        CallbackKeyConfig("b-2026", "active", "credential:billing.key"),
        CallbackKeyConfig("b-2025", "retiring", "/etc/old.key"),
    )
    assert (told.username, told.password_file, told.bearer_file) == ("eventd", "/etc/password", "")
    assert told.headers == (("x-env", "prod"), ("X-Empty", ""))
    assert told.tls == ClientTlsConfig("/etc/ca.crt", "/etc/own.crt", "/etc/own.key")
    assert (told.timeout, told.connect_timeout, told.per_second, told.in_flight) == (10.0, 0.5, 50, 4)
    assert (told.backoff.base, told.backoff.cap, told.isolate_after) == (2.0, 60.0, 3)
    assert (told.disable_after, told.hold) == (24 * HOUR, HOUR)


def test_a_topic_is_the_source_of_records() -> None:
    text = callback("match: {types: ['orders.*'], sourceNodes: [n]}\nauth: {bearerFile: /t}", source="{topic: 'a:b.c'}")
    told = config(text)
    assert (told.group, told.topic, told.bearer_file) == ("", "a:b.c", "/t")
    assert told.selector == Selector.of(types=["orders.*"], sources=["n"])


def test_zero_switches_disabling_and_holding_off() -> None:
    told = config(callback("disableAfter: 0s\nhold: 0s"))
    assert (told.disable_after, told.hold) == (None, None)


@pytest.mark.parametrize(
    ("format", "source", "events"),
    [
        ("standard", "{groupRef: edge}", 1),
        ("batch", "{groupRef: edge}", 100),
        ("records", "{topic: orders}", 100),
        ("routemaster", "{topic: orders}", 100),
    ],
)
def test_the_number_of_events_in_a_request_depends_on_the_format(format: str, source: str, events: int) -> None:
    text = callback(f"format: {format}", source=source)
    assert config(text).max_events == events
    assert effective(text)["batch"]["maxEvents"] == events


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("", "batch: {maxEvents: 1}\nmatch: {types: ['*']}"),
        ("format: batch", "format: batch\nbatch: {maxEvents: 100, window: 0s}"),
        ("", "signing: {keys: []}\nheaders: {}\nauth: {username: '', passwordFile: '', bearerFile: ''}"),
        ("disableAfter: 5d", "disableAfter: 120h"),
    ],
)
def test_two_ways_of_writing_it_mean_the_same(one: str, other: str) -> None:
    [before], [after] = accepted(callback(one), STORED), accepted(callback(other), STORED)
    assert after.means(before)
    [change] = plan([after], [row(before)]).changes
    assert change.action is Action.UNCHANGED


def test_what_is_stored_is_what_was_written() -> None:
    [resource] = accepted(callback("format: batch\nheaders: {x: ''}\nmatch: {types: [a], payload: {k: ''}}"), STORED)
    assert resource.canonical() == {
        "source": {"groupRef": "edge"},
        "url": "https://billing.example/hooks",
        "format": "batch",
        "headers": {"x": ""},
        "match": {"types": ["a"], "payload": {"k": ""}},
    }


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("https://billing.example/hooks/", "https://billing.example/hooks/"),
        ("HTTPS://Billing.Example:8443/Hooks//?Key=A&b=/#", None),
        ("HTTPS://Billing.Example:8443/Hooks//?Key=A&b=/", "https://billing.example:8443/Hooks//?Key=A&b=/"),
        ("https://billing.example", "https://billing.example"),
        ("https://billing.example/?", "https://billing.example/?"),
        ("https://[2606:4700::1]/a%20b", "https://[2606:4700::1]/a%20b"),
        ("https://x.example/" + "a" * 8174, "https://x.example/" + "a" * 8174),
    ],
)
def test_a_url_stays_as_it_is_written(url: str, canonical: str | None) -> None:
    if canonical is None:
        assert found(callback(url=f"'{url}'"))
    else:
        assert config(callback(url=f"'{url}'")).url == canonical


def test_a_url_without_tls_is_allowed_by_name() -> None:
    assert (
        config(callback("allowPlain: true", url="http://billing.example:8080/")).url == "http://billing.example:8080/"
    )


# --- what is refused ------------------------------------------------------------------------------------------------

OTHER_URL = "for example https://billing.example/hooks"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is required"),
        ("5", "must be text (put it in quotes)"),
        ("[a]", "must be text"),
        ("billing.example/hooks", f"must begin with http:// or https:// ({OTHER_URL})"),
        ("ftp://billing.example", f"must begin with http:// or https:// ({OTHER_URL})"),
        ("https://", f"must name a host ({OTHER_URL})"),
        ("https:///hooks", f"must name a host ({OTHER_URL})"),
        ("https://127.1/", f"must have a valid name or a complete address as its host ({OTHER_URL})"),
        ("https://billing.example:0/", "must not name port 0 (write a port from 1 to 65535, or leave it out)"),
        (
            "https://billing.example:65536/",
            "must be a URL such as https://billing.example/hooks; its host or port is not valid",
        ),
        ("'https://[::1'", "must be a URL such as https://billing.example/hooks; its host or port is not valid"),
        ("'https://billing.example/#a'", "must not contain a fragment, which is never sent"),
        ("https://billing.example/a b", "must be a URL without blanks and without characters outside ASCII"),
        ("https://billing.example/ä", "must be a URL without blanks and without characters outside ASCII"),
        ('"https://billing.example/\\r\\nx: y"', "must be a URL without blanks and without characters outside ASCII"),
        ("https://x.example/" + "a" * 8175, "must not be longer than 8192 characters"),
        ("https://me:hunter2@billing.example/", "must not contain a user name or a password (write spec.auth)"),
        (
            "http://billing.example/?key=hunter2",
            "must begin with https://: anyone on the way could read and change the events (or write allowPlain: true)",
        ),
    ],
)
def test_a_wrong_url_is_refused_without_being_repeated(url: str, message: str) -> None:
    [told] = found(callback(url=url))
    assert told == f"6: EventCallback/billing spec.url: {message}"
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "spec.source: is required"),
        ("edge", "spec.source: must be a mapping of fields, not 'edge'"),
        ("{}", "spec.source.groupRef: is required, or topic instead of it"),
        ("{groupRef: '', topic: ''}", "spec.source.groupRef: is required, or topic instead of it"),
        (
            "{groupRef: edge, topic: orders}",
            "spec.source.topic: groupRef and topic exclude each other (leave one of them out)",
        ),
        (
            "{groupRef: egde}",
            "spec.source.groupRef: EventGroup egde is not declared (did you mean edge?)",
        ),
        (
            "{topic: 'group:edge'}",
            "spec.source.topic: 'group:edge' must not be the topic of a group (write source.groupRef)",
        ),
        (
            "{topic: -a}",
            "spec.source.topic: must be 1 to 255 letters, digits or '.', '_', ':', '-', beginning with a letter or a"
            " digit, not '-a'",
        ),
        ("{topics: orders}", "spec.source.topics: unknown field (did you mean topic?)"),
    ],
)
def test_a_callback_has_one_source(source: str, problem: str) -> None:
    [told] = found(callback(source=source))
    assert told == f"5: EventCallback/billing {problem}"


HINT = "(records are selected by types, which test the tag, and by sourceNodes)"


def test_records_have_neither_subject_nor_payload() -> None:
    text = callback("match:\n  types: [a]\n  subjectPrefixes: [x]\n  payload: {k: v}", source="{topic: orders}")
    assert found(text) == [
        f"9: EventCallback/billing spec.match.subjectPrefixes: is only for events of a group: records have none {HINT}",
        f"10: EventCallback/billing spec.match.payload: is only for events of a group {HINT}",
    ]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("match: {}", "spec.match.types: is required"),
        ("match: {types: []}", "spec.match.types: must name at least one type (write [*] for events of every type)"),
        ("match: {types: ['a*']}", "spec.match.types[0]: may contain * only alone, or at the end after a dot"),
        ("format: cloudevents", "spec.format: must be standard, batch, records or routemaster, not 'cloudevents'"),
        (
            "format: routemaster",
            "spec.format: routemaster needs spec.source.topic: events of a group do not have its form"
            " (write standard, batch or records)",
        ),
        ("from: latest", "spec.from: must be now or earliest, not 'latest'"),
        ("start: earliest", "spec.start: unknown field (known in spec: source, match, url, format, from, "),
        ("batch: {maxEvents: 2}", "spec.batch.maxEvents: must be 1 for format standard (or write format: batch)"),
        ("batch: {maxEvents: 0}", "spec.batch.maxEvents: must be at least 1, not 0"),
        (
            "batch: {window: 1s}",
            "spec.batch.window: has no effect for format standard, whose requests carry one event"
            " (leave it out, or write format: batch)",
        ),
        ("batch: {window: 61m}", "spec.batch.window: must be between 0s and 1h0m0s, not '61m'"),
        ("batch: {maxBytes: 5MiB}", "spec.batch.maxBytes: must be between 1KiB and 4MiB, not '5MiB'"),
        ("limits: {timeout: 0s}", "spec.limits.timeout: must be between 100ms and 1h0m0s, not '0s'"),
        ("limits: {perSecond: -1}", "spec.limits.perSecond: must be at least 0, not -1"),
        ("limits: {inFlight: 17}", "spec.limits.inFlight: must be at most 16, not 17"),
        ("retry: {isolateAfter: 0}", "spec.retry.isolateAfter: must be at least 1, not 0"),
        ("retry: {isolateAfter: 101}", "spec.retry.isolateAfter: must be at most 100, not 101"),
        ("retry: {baseBackoff: 1h}", "spec.retry.maxBackoff: must not be less than baseBackoff"),
        ("disableAfter: -1h", "spec.disableAfter: must be between 0s and 8784h0m0s, not '-1h'"),
        ("hold: forever", "spec.hold: 'forever' is not a duration; write 30s, 5m or 168h"),
        ("allowPlain: 'true'", "spec.allowPlain: must be true or false, not 'true' (leave the quotes out)"),
        ("timeout: 5s", "spec.timeout: unknown field (did you mean spec.limits.timeout?)"),
        (
            "tls: {clientCertFile: /etc/own.crt}",
            "spec.tls.clientKeyFile: is required: clientCertFile and clientKeyFile belong together",
        ),
        (
            "tls: {clientKeyFile: /etc/own.key}",
            "spec.tls.clientCertFile: is required: clientCertFile and clientKeyFile belong together",
        ),
        ("tls: {caFile: ca.crt}", "spec.tls.caFile: must be an absolute path to a file, or credential:NAME"),
    ],
)
def test_what_is_wrong_in_the_spec_is_named(more: str, problem: str) -> None:
    [told] = found(callback(more))
    assert told.startswith(f"7: EventCallback/billing {problem}")


def test_tls_needs_https() -> None:
    assert found(callback("allowPlain: true\ntls: {caFile: /etc/ca.crt}", url="http://billing.example/")) == [
        "6: EventCallback/billing spec.url: must begin with https:// for spec.tls to have an effect"
    ]


def test_format_routemaster_takes_no_query() -> None:
    text = callback("format: routemaster", source="{topic: orders}", url="https://billing.example/hooks?a=b")
    assert found(text) == [
        "6: EventCallback/billing spec.url: must not contain a query for format routemaster",
    ]


# --- signing and credentials ----------------------------------------------------------------------------------------


ONE_CREDENTIAL = "bearerFile excludes username and passwordFile (a request has one header Authorization)"


def keys(*lines: str) -> str:
    return "signing:\n  keys:\n" + "".join(f"    - {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (keys("{secretFile: /k}"), "9: spec.signing.keys[0].id: is required"),
        (keys("{id: a}"), "9: spec.signing.keys[0].secretFile: is required"),
        (
            keys("{id: a, secretFile: ''}"),
            "9: spec.signing.keys[0].secretFile: is required (create a secret: routerctl callback secret new)",
        ),
        (
            keys("{id: a, secretFile: /k}", "{id: b, secretFile: /k}", "{id: a, secretFile: /k, state: revoked}"),
            "11: spec.signing.keys[2].id: the key id a is used twice, first in keys[0]",
        ),
        (
            keys("{id: a, state: pending, secretFile: /k}", "{id: b, state: revoked, secretFile: /k}"),
            "8: spec.signing.keys: contain no active or retiring key, so nothing would be signed"
            " (make one of them active; without signing.keys, requests are not signed)",
        ),
        (
            keys("{id: a, state: old, secretFile: /k}"),
            "9: spec.signing.keys[0].state: must be active, retiring, pending or revoked, not 'old'",
        ),
        (
            keys(*[f"{{id: k{at}, secretFile: /k}}" for at in range(17)]),
            "8: spec.signing.keys: must not be more than 16 keys",
        ),
        (
            "auth: {username: a, bearerFile: /t}",
            f"7: spec.auth.bearerFile: {ONE_CREDENTIAL}",
        ),
        (
            "auth: {passwordFile: /p, bearerFile: /t}",
            f"7: spec.auth.bearerFile: {ONE_CREDENTIAL}",
        ),
        ("auth: {passwordFile: /p}", "7: spec.auth.username: is required with passwordFile"),
        ("auth: {username: 'a:b'}", "7: spec.auth.username: must not contain a colon or a control character"),
        ('auth: {username: "a\\nb"}', "7: spec.auth.username: must not contain a colon or a control character"),
        (f"auth: {{username: {'a' * 1025}}}", "7: spec.auth.username: must not be longer than 1024 characters"),
    ],
)
def test_what_is_wrong_in_keys_and_credentials_is_named(text: str, problem: str) -> None:
    [told] = found(callback(text))
    line, _, message = problem.partition(" ")
    assert told == f"{line} EventCallback/billing {message}"


def test_sixteen_keys_are_accepted() -> None:
    assert len(config(callback(keys(*[f"{{id: k{at}, secretFile: /k}}" for at in range(16)]))).keys) == 16


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (keys("{id: a, secretFile: whsec_hunter2}"), "signing.keys[0].secretFile"),
        ("auth: {username: a, passwordFile: hunter2}", "auth.passwordFile"),
        ("auth: {bearerFile: hunter2}", "auth.bearerFile"),
        ("tls: {clientCertFile: /c, clientKeyFile: hunter2}", "tls.clientKeyFile"),
    ],
)
def test_a_secret_in_the_place_of_its_file_is_not_shown(text: str, field: str) -> None:
    [told] = found(callback(text))
    assert f" spec.{field}: must be an absolute path to a file, or credential:NAME (" in told
    assert "hunter2" not in told


# --- headers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("accept", "Accept-Encoding", "connection", "Expect", "Keep-Alive", "TE", "trailer", "Transfer-Encoding"),
        *("upgrade", "User-Agent", "Content-Type", "content-length", "Content-Digest", "Proxy-Authorization"),
        *("webhook-id", "Webhook-Signature", "routerd-repair", "Routerd-Anything"),
    ],
)
def test_a_header_of_the_node_is_refused(name: str) -> None:
    [told] = found(callback(f"headers:\n  x-env: prod\n  {name}: a"))
    assert told.startswith("9: EventCallback/billing spec.headers")
    assert told.endswith(": is set by the node (leave it out)")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("Authorization: a", ".Authorization: is set by the node (write spec.auth)"),
        ("host: a", ".host: is set by the node (it is that of spec.url)"),
        ("Cookie: a", ".Cookie: is not sent: callbacks keep no cookies (leave it out)"),
        ("'x env': a", '["x env"]: is not the name of a header (use letters, digits and -)'),
        ("'x:': a", '["x:"]: is not the name of a header (use letters, digits and -)'),
        ("'': a", '[""]: is not the name of a header (use letters, digits and -)'),
        ('"x\\r\\ny": a', '["x\\u000d\\u000ay"]: is not the name of a header (use letters, digits and -)'),
        ("xä: a", ".xä: is not the name of a header (use letters, digits and -)"),
        ("x: 5", ".x: must be text (put it in quotes)"),
        ("x:", ".x: must be text"),
    ],
)
def test_what_is_wrong_with_a_header_is_named(header: str, problem: str) -> None:
    [told] = found(callback(f"headers:\n  {header}"))
    assert told == f"8: EventCallback/billing spec.headers{problem}"


@pytest.mark.parametrize(
    "value",
    [
        "hunter2\\r\\nHost: x",
        "hunter2\\n",
        "hunter2\\x01",
        "hunter2\\x7f",
        "hunter2 €",
        "hunter2 ä",
        " hunter2",
        "hunter2 ",
    ],
)
def test_a_value_is_one_line_of_ascii_and_never_shown(value: str) -> None:
    [told] = found(callback(f'headers: {{x: "{value}"}}'))
    problem = "must be printable ASCII characters on one line, without blanks at the ends"
    assert told == f"7: EventCallback/billing spec.headers.x: {problem}"


def test_a_header_is_written_once() -> None:
    assert found(callback("headers:\n  x-env: a\n  y: b\n  X-Env: c")) == [
        '10: EventCallback/billing spec.headers["X-Env"]: is the same header as x-env (write it once)'
    ]


def test_headers_are_limited_in_number_and_size() -> None:
    def headers(count: int, size: int) -> str:
        return callback("headers:\n" + "".join(f"  x{at:02}: {'a' * (size - 3)}\n" for at in range(count)))

    assert found(headers(32, 256)) == []
    assert found(headers(33, 9)) == ["7: EventCallback/billing spec.headers: must not be more than 32 headers"]
    assert found(headers(32, 257)) == [
        "7: EventCallback/billing spec.headers: must not be longer than 8192 characters together"
    ]
