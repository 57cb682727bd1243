"""What a support bundle removes from answers and logs."""

from __future__ import annotations

import json

import pytest

from eventd.cli.support.anonymity import Pseudonyms
from eventd.cli.support.redaction import redact, redact_text
from eventd.runtime.chance import SYSTEM

CANARY = "c4n4ry-0123456789"


@pytest.mark.parametrize(
    "value",
    [
        {"spec": {"headers": {"X-Auth": CANARY}}},
        {"spec": {"env": {"HOME": CANARY}}},
        {"metadata": {"annotations": {"note": CANARY}}},
        {"url": f"https://user:{CANARY}@hooks.example/x"},
        {"url": f"https://hooks.example/x?key={CANARY}#{CANARY}"},
        {"lastError": f"cannot connect to postgresql://eventd:{CANARY}@db/eventd"},
        {"clientSecret": CANARY},
        {"rows": [{"password": CANARY}]},
        {"token": CANARY},
        {"spec": {"preSharedKey": CANARY}},
        {"spec": {"pre_shared_key": CANARY}},
        {"spec": {"community": CANARY}},
        {"spec": {"psk": CANARY}},
        {"spec": {"privateKey": CANARY, "encryption-key": CANARY, "authPassphrase": CANARY}},
        {"detail": f"Authorization: Bearer {CANARY}"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_no_secret_of_an_answer_stays(value: dict[str, object]) -> None:
    assert CANARY not in json.dumps(redact(value))


@pytest.mark.parametrize(
    "line",
    [
        f"GET http://user:{CANARY}@a.example/ failed",
        f"authorization: Bearer {CANARY}",
        f'{{"msg":"x","authorization":"Basic {CANARY}"}}',
        f"api_key={CANARY} refused",
        f"EVENTD_API_KEY={CANARY}",
        f'"secret": "{CANARY}"',
        f"Cookie: __Host-eventd={CANARY}; a=b",
        f"https://a.example/x?sig={CANARY} answered 401",
        f"postgresql://u:p/{CANARY}@h/x failed",
        f"key evk_{CANARY} refused",
        f"whsec_{CANARY}",
        f"x-api-key: {CANARY}",
        f"routerctl --key {CANARY} get",
        f"routerctl --key={CANARY} get",
        f"password='a b {CANARY}'",
        f'password="a b {CANARY}"',
        f'{{"password": "a\\"b-{CANARY}"}}',
        f'{{"msg": "{{\\"password\\": \\"a {CANARY}\\"}}"}}',
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n",
        f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}",
        f'{{"msg": "-----BEGIN PRIVATE KEY-----\\n{CANARY}\\n-----END PRIVATE KEY-----"}}',
    ],
)
def test_no_secret_of_a_line_stays(line: str) -> None:
    assert CANARY not in redact_text(line)


@pytest.mark.parametrize(
    "line",
    [
        {"password": 'a"b-' + CANARY, "peer": "beta"},
        {"msg": 'body {"password": "a b"} of beta', "peer": "beta"},
        {"msg": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----", "peer": "beta"},
        {"url": f"https://u:{CANARY}@h:1/x", "peer": "beta"},
    ],
)
def test_a_line_of_json_stays_json(line: dict[str, str]) -> None:
    shown = redact_text(json.dumps(line))
    assert CANARY not in shown
    assert json.loads(shown)["peer"] == "beta"


@pytest.mark.parametrize(
    "line",
    [
        "'a b' is not a token: use at most 64 of",
        "the key --key names is unknown",
        "the secret is read from a file",
        "http://10.99.0.7:8787/base answered 401, see a@b",
        "-----BEGIN CERTIFICATE-----",
    ],
)
def test_ordinary_sentences_stay_as_they_are(line: str) -> None:
    assert redact_text(line) == line


@pytest.mark.parametrize("part", ["a-", "token", "://a:", '\\"', "bearer "])
def test_a_long_line_is_read_in_linear_time(part: str) -> None:
    assert len(redact_text(part * 100_000)) >= 9


@pytest.mark.parametrize(
    "value",
    [
        {"secretFile": "/etc/routerd-eventd/edge.key"},
        {"bearerFile": "/run/credentials/x"},
        {"endpoint": "http://10.99.0.7:8787/base"},
        {"tokenId": "reader-1", "lastError": "peer answered 401 bad_signature"},
        {"createdAt": "2026-11-29T12:00:00Z", "count": 3, "paused": False, "reason": None},
    ],
)
def test_what_is_no_secret_stays_as_it_is(value: dict[str, object]) -> None:
    assert redact(value) == value


def names_of(value: object) -> Pseudonyms:
    names = Pseudonyms(SYSTEM)
    names.learn(value)
    return names


def test_a_name_is_the_same_word_everywhere_and_not_the_name() -> None:
    resource = {"kind": "EventPeer", "metadata": {"name": "beta"}, "spec": {"endpoint": "http://beta.example:8787"}}
    names = names_of([resource])
    shown = names.value(resource)
    word = shown["metadata"]["name"]
    assert "beta" not in json.dumps(shown)
    assert shown["kind"] == "EventPeer"
    assert names.text("link to beta is blocked") == f"link to {word} is blocked"
    assert names.text("alphabeta and betas") == "alphabeta and betas"
    assert names.figures('lag{peer="beta"} 1\n') == f'lag{{peer="{word}"}} 1\n'
    assert json.loads(names.log('{"msg":"link blocked","peer":"beta"}\n')) == {"msg": "link blocked", "peer": word}


def test_addresses_are_replaced_but_not_that_of_the_machine_itself() -> None:
    line = "10.99.0.7, 10.99.0.8:80, 2001:db8:1::7 and [2001:db8:1::8]:80 at 127.0.0.1:8780, 12:30:45, to 10.99.0.9."
    shown = names_of([]).text(line)
    assert "10.99" not in shown
    assert ":1::" not in shown
    assert "127.0.0.1:8780, 12:30:45" in shown


def test_two_bundles_do_not_use_the_same_words() -> None:
    resource = {"metadata": {"name": "beta"}}
    assert names_of(resource).text("beta") != names_of(resource).text("beta")


def test_members_and_words_of_the_product_stay() -> None:
    row = {"name": "state", "state": "running", "labels": {"site": "north"}}
    shown = names_of(row).value(row)
    assert {"name": "state", "state": "running"}.items() <= shown.items()
    assert list(shown) == ["name", "state", "labels"]
    assert "site" not in shown["labels"]


ACTION = {"caller": {"kind": "local", "address": "local socket"}, "who": "local root", "user": "root"}


@pytest.mark.parametrize(
    "learned",
    [
        ACTION,
        {"address": "127.0.0.1"},
        {"endpoint": "http://127.0.0.1:8787"},
        {"address": "127.0.0.1:8787", "host": "[::1]:8787"},
        {"name": "default"},
        {"source": "EventSubscription/events"},
    ],
    ids=["local", "loopback", "url", "port", "default", "kind"],
)
def test_what_every_node_has_stays_as_it_is(learned: dict[str, object]) -> None:
    names = names_of([learned])
    assert names.value(learned) == learned
    line = "local root at 127.0.0.1:8787 with 8787 events of an EventSubscription (default)"
    assert names.text(line) == line


def test_a_url_keeps_its_form_and_loses_its_host() -> None:
    names = names_of([{"endpoint": "http://beta.example:8787/base"}])
    shown = names.value({"endpoint": "http://beta.example:8787/base"})["endpoint"]
    assert shown.startswith("http://x-")
    assert shown.endswith(":8787/base")


def test_a_name_of_digits_is_replaced_and_settings_keep_their_descriptions() -> None:
    names = names_of([{"node": "4711"}, {"peer": "URL"}, {"peer": "file"}])
    assert "4711" not in names.text("link to 4711 is blocked")
    row = {"name": "file", "description": "`https://HOST[:PORT]` of the file", "value": "file"}
    shown = names.value(row, fixed=frozenset({"name", "description"}))
    assert (shown["description"], shown["name"]) == (row["description"], "file")
    assert shown["value"] != "file"
    line = json.loads(names.log('{"ts":"file","level":"file","logger":"file","peer":"file"}\n'))
    assert (line["ts"], line["level"], line["logger"]) == ("file", "file", "file")
    assert line["peer"] != "file"


@pytest.mark.parametrize(
    ("learned", "names"),
    [
        ({"object": "topic zeta-invoices"}, ["zeta-invoices"]),
        ({"object": "router acme-invoices->acme-copy"}, ["acme-invoices->acme-copy", "acme-invoices", "acme-copy"]),
        ({"object": "EventGroup othrzeta"}, ["othrzeta"]),
        ({"object": "peer zcore/zsite"}, ["zcore", "zsite"]),
        ({"arguments": {"objects": ["Topic acme-declared", "EventPeer zbeta"]}}, ["acme-declared", "zbeta"]),
        ({"object": "event zdoor-17 of peer zsite: id_conflict"}, ["zdoor-17", "zsite"]),
        ({"objects": ["event 8 of router zin->zout: no_target"]}, ["zin->zout", "zin", "zout"]),
        ({"series": [{"kind": "topic", "topic": "zeta-invoices"}]}, ["zeta-invoices"]),
        ({"router": "zin->zout"}, ["zin->zout", "zin"]),
        ({"lastError": "topic 'zeta' does not exist; EventPeer/zbeta has none"}, ["zeta", "zbeta"]),
        ({"detail": "the topic zeta does not exist"}, ["zeta"]),
    ],
)
def test_a_name_is_learned_wherever_names_stand(learned: dict[str, object], names: list[str]) -> None:
    replaced = names_of(learned)
    for name in names:
        assert name not in replaced.text(f"of {name}, ({name})"), name
    assert not any(name in json.dumps(replaced.value(learned)) for name in names)
    line = "the topic is one of a router; job 12 of this EventGroup is done"
    assert replaced.text(line) == line


def test_the_reason_of_a_dropped_dead_letter_stays() -> None:
    names = names_of([{"object": "event e1 of peer zsite: id_conflict"}])
    assert names.text("2 of id_conflict") == "2 of id_conflict"


@pytest.mark.parametrize(
    "line",
    [
        '{"msg":"action","object":"topic zeta"}',
        '2026-11-29T12:00:00+0000 h eventd[1]: {"msg":"router added","router":"zeta->zcopy"}',
        "level=info msg=trimmed topic=zeta",
        'eventd_topic_records{topic="zeta"} 3',
        "GET /v0/topics/zeta/records answered 404",
        "POST /api/v1/groups/core/peers/zeta/pause answered 409",
    ],
)
def test_names_that_only_a_log_or_metrics_mention_are_replaced(line: str) -> None:
    names = names_of([])
    names.learn_text(line + "\n")
    assert "zeta" not in names.log(line + "\n")
    assert "answered records" in names.text("answered records")


def test_members_called_name_are_no_names_where_the_product_names_things() -> None:
    names = Pseudonyms(SYSTEM)
    names.learn([{"name": "clock", "group": "zedge", "object": "job 12"}], nameless=True)
    assert names.text("clock of zedge: 12").startswith("clock of x-")
    assert names.text("12") == "12"


@pytest.mark.parametrize(
    "text",
    [
        "no route to {}. Retry",
        "peer {}: refused",
        "cannot connect to {}.",
        "{}; and another",
        "[{}].",
        "{}\n",
    ],
)
@pytest.mark.parametrize("address", ["2001:db8::17", "2001:db8:1:2:3:4:5:6", "2001:db8::", "fe80::1", "192.0.2.7"])
def test_an_address_is_replaced_before_the_marks_that_follow_it(text: str, address: str) -> None:
    names = Pseudonyms(SYSTEM)
    word = names.text(f"[{address}]" if "[" in text else address)
    assert word.startswith("ip-")
    assert names.text(text.format(address)) == text.replace("[{}]", "{}").format(word)


def test_a_host_is_replaced_in_any_case() -> None:
    names = names_of({"endpoint": "https://Core.Example.COM:8443/x"})
    shown = names.text("certificate is not for Core.Example.COM, core.example.com")
    assert "xample" not in shown
    first, second = shown.removeprefix("certificate is not for ").split(", ")
    assert first == second == names.text("https://CORE.example.com/").removeprefix("https://").removesuffix("/")


def test_only_the_first_level_of_a_line_of_a_log_has_members_that_stay() -> None:
    names = names_of({"group": "secretgroup"})
    line = names.log('{"ts":"secretgroup","level":"info","inner":{"level":"secretgroup","ts":"to secretgroup"}}\n')
    assert line.startswith('{"ts":"secretgroup","level":"info"')
    assert line.count("secretgroup") == 1


def test_the_user_info_of_a_url_in_a_log_is_in_no_bundle() -> None:
    line = '{"ts":"1","message":"cannot reach https://svc:t0ken@host.example/path"}\n'
    assert "svc" not in redact_text(line)
    for shown in (Pseudonyms(SYSTEM).log(line), Pseudonyms(SYSTEM).log(redact_text(line)), redact_text(line)):
        assert "t0ken" not in shown
        assert "svc" not in shown
    assert "host.example" not in Pseudonyms(SYSTEM).log(redact_text(line))
