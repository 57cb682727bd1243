"""The answers of plugins as the node reads them: decoding, refusals and their messages, and capabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from eventd.plugins.contract.answer import check_capabilities, read_answer, read_status
from eventd.plugins.contract.contract import PluginFailed, Result
from eventd.testing import NOW
from tests.support.plugins import SECOND

HEAD = '{"apiVersion":"plugin.routerd.net/v1alpha1","kind":"PluginResult","status":'
EMPTY = HEAD + '{"ttl":"5m"}}'
RES = {"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "spec": {}}
TARGET = {"apiVersion": "a/v1", "kind": "K", "name": "n"}
PLAN = {"name": "a", "provider": "oci", "action": "ensure-forwarding-enabled"}


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


def of_program(status: dict[str, Any]) -> Result:
    """Read the status as the answer of a program."""
    answer = {"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult", "status": {"ttl": "5m", **status}}
    return read_answer(msgspec.json.encode(answer), now=NOW)


def of_function(status: dict[str, Any]) -> Result:
    """Read the status as the answer of an entry point."""
    return read_status(msgspec.json.encode({"ttl": "5m", **status}), now=NOW, ttl=600 * SECOND)


both = pytest.mark.parametrize("read", [of_program, of_function])


def refused(answer: bytes) -> PluginFailed:
    with pytest.raises(PluginFailed) as caught:
        read_answer(answer, now=NOW)
    return caught.value


# --- decoding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "the plugin wrote nothing to its standard output"),
        (b" \n", "the plugin wrote nothing to its standard output"),
        (b"null", "the plugin's output is not a mapping"),
        (b"[1, 2]", "the plugin's output is not a mapping"),
        (b"hello", "the plugin's output is not a mapping"),
        (
            b"\x7fELF\x02\x01\x01\0\0",
            "cannot be read as JSON or YAML: line 1: the character U+007F is not allowed in YAML",
        ),
        (b'{"a": "\xff"}', "the plugin's output is not text: byte 7 is not UTF-8"),
        (b"{", "the plugin's output cannot be read as JSON or YAML: line 2"),
        (b"a: 1\na: 2\n", "the plugin's output, line 2: the key a stands twice in one mapping, first on line 1"),
        (b'{"a": 1,\n"b": {"c": 1, "c": 2}}', "line 2: the key c stands twice in one mapping, first on line 2"),
        (EMPTY.encode() + b"\n---\nb: 1\n", "the plugin's output continues after its first document, on line 3"),
        (EMPTY.encode() + b"\n" + EMPTY.encode(), "the plugin's output cannot be read as JSON or YAML: line 2"),
        (EMPTY.encode() + b"\ndone\n", "the plugin's output cannot be read as JSON or YAML: line 2"),
        (b"a: !!python/object/apply:os.system [id]\n", "is not supported; leave it out"),
        (b"a: &a [*a]\n", "the alias *a stands inside itself"),
        (b"[" * 100_000, "is nested more than 64 levels deep"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "is nested more than 64 levels deep"),
    ],
)
def test_bytes_that_are_no_answer(answer: bytes, told: str) -> None:
    failed = refused(answer)
    assert failed.reason in ("undecodable", "refused")
    assert told in failed.message


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (EMPTY.replace("net/v1alpha1", "net/v1"), "apiVersion must be plugin.routerd.net/v1alpha1"),
        (EMPTY.replace("PluginResult", "PluginRequest"), "kind must be PluginResult"),
        (EMPTY.replace('"status"', '"statues"'), "status is required"),
        (HEAD + "{}}", "status.ttl is required"),
        (HEAD + '{"ttl":null}}', "status.ttl is required"),
        (HEAD + '{"ttl":NaN}}', "status.ttl 'NaN' is not a duration; write 30s, 5m or 168h"),
        (HEAD + '{"ttl":"1w"}}', "status.ttl '1w' is not a duration; write 30s, 5m or 168h"),
        (HEAD + '{"ttl":"1h","observedAt":"9999-12-31T23:30:00Z"}}', "status.observedAt is too late"),
        (HEAD + '{"ttl":"1h","resources":{}}}', "status.resources must be a list"),
        (HEAD + '{"ttl":"1h","x":.nan}}', "contains a number that is not finite"),
        (HEAD + '{"ttl":"1h","x":"\\u0000"}}', "contains the character U+0000"),
        (HEAD + '{"ttl":"1h","x":123456789012345678901234567890}}', "a whole number outside the signed 64-bit range"),
    ],
)  # fmt: skip
def test_answers_that_are_refused(answer: str, told: str) -> None:
    failed = refused(answer.encode())
    assert failed.reason == "refused"
    assert told in failed.message


@pytest.mark.parametrize("beginning", ["", "# the same as YAML\n"])
def test_json_may_be_as_deep_as_yaml(beginning: str) -> None:
    """The mapping, the status, the lists and the number in them."""
    deepest, too_deep = (
        beginning + HEAD + '{"ttl":"5m","x":' + "[" * lists + "1" + "]" * lists + "}}" for lists in (61, 62)
    )
    assert read_answer(deepest.encode(), now=NOW).resources == []
    assert "is nested more than 64 levels deep" in refused(too_deep.encode()).message


def test_a_billion_laughs_are_not_laughed() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "values (each use of an alias" in refused("\n".join(lines).encode()).message


def test_one_long_laugh_many_times_is_not_laughed_either() -> None:
    text = f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 1000)}]\n"
    message = "the plugin's answer has more than 1000000 keys and values, or 8388608 characters, aliases expanded"
    assert refused(text.encode()).message == message


def test_yaml_is_an_answer() -> None:
    answer = """\
apiVersion: plugin.routerd.net/v1alpha1
kind: PluginResult
status:
  ttl: 10m
  observedAt: 2026-05-30T12:00:05Z
  resources:
    - apiVersion: net.routerd.net/v1alpha1
      kind: IPv4Route
      metadata: {name: claim, annotations: {b: "2", a: "1"}, labels: {x: y}}
      spec: {gateway: 10.99.0.6, enabled: yes}
"""
    result = read_answer(answer.encode(), now=NOW)
    assert result.observed_at == 1780142405 * SECOND
    assert result.ttl == 600 * SECOND
    assert result.resources == [
        {
            "apiVersion": "net.routerd.net/v1alpha1",
            "kind": "IPv4Route",
            "metadata": {"name": "claim", "annotations": {"a": "1", "b": "2"}},
            "spec": {"gateway": "10.99.0.6", "enabled": "yes"},
        }
    ]


# --- reading ------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"ttl": "0s"}, "status.ttl must be longer than 0s, not '0s'"),
        ({"ttl": "-5m"}, "status.ttl must be longer than 0s, not '-5m'"),
        ({"ttl": "soon"}, "status.ttl 'soon' is not a duration; write 30s, 5m or 168h"),
        ({"ttl": 300}, "status.ttl must be text, not 300"),
        ({"observedAt": "today"}, "status.observedAt must be a time such as 2026-05-30T12:00:05Z, not 'today'"),
        ({"resources": [without(RES, "apiVersion")]}, "status.resources[0].apiVersion is required"),
        ({"resources": [RES, {**RES, "kind": " "}]}, "status.resources[1].kind is required"),
        ({"resources": [{**RES, "metadata": {}}]}, "status.resources[0].metadata.name is required"),
        ({"resources": [without(RES, "spec")]}, "status.resources[0].spec is required"),
        ({"resources": [{**RES, "spec": []}]}, "status.resources[0].spec must be a mapping of fields"),
        (
            {"resources": [{**RES, "spec": {"a": "\0"}}]},
            "contains the character U+0000 or half of a surrogate pair",
        ),
        (
            {"resources": [{**RES, "kind": "EventGroup"}]},
            "status.resources[0].apiVersion: EventGroup is not known in a/v1",
        ),
        (
            {"resources": [{**RES, "apiVersion": "v1"}]},
            "status.resources[0] must have an apiVersion and a kind such as net.example/v1 and IPv4Route",
        ),
        (
            {"resources": [{**RES, "apiVersion": "config.routerd.net/v1alpha1", "kind": "DynamicConfigPart"}]},
            "status.resources[0].kind DynamicConfigPart is unknown in config.routerd.net/v1alpha1",
        ),
        (
            {"resources": [RES, {**RES, "spec": {"a": 1}}]},
            "status.resources[1] defines a/v1/K/n again with other content",
        ),
        ({"directives": [{"op": "mask"}]}, "status.directives[0].target is required"),
        (
            {"directives": [{"op": "mask", "target": without(TARGET, "name")}]},
            "status.directives[0].target.name is required",
        ),
        ({"directives": [{"op": "drop", "target": TARGET}]}, "status.directives[0].op must be mask, not 'drop'"),
        (
            {"actionPlans": [{**PLAN, "provider": "acme"}]},
            "status.actionPlans[0].provider must be aws, azure, oci or gcp, not 'acme'",
        ),
        (
            {"actionPlans": [{**PLAN, "action": "assign-secondary-ip"}]},
            "status.actionPlans[0].target.address is required for assign-secondary-ip",
        ),
        (
            {"actionPlans": [{**PLAN, "riskLevel": "none"}]},
            "status.actionPlans[0].riskLevel must be blank, low, medium or high, not 'none'",
        ),
        ({"actionPlans": [{**PLAN, "mode": "execute"}]}, "status.actionPlans[0].mode must not be execute"),
        ({"events": [{"message": "no type"}]}, "status.events[0].type is required"),
    ],
)
def test_a_result_that_does_not_hold_together_is_refused(
    read: Callable[[dict[str, Any]], Result], status: dict[str, Any], told: str
) -> None:
    with pytest.raises(PluginFailed) as caught:
        read(status)
    assert caught.value.reason == "refused"
    assert caught.value.message.removeprefix("the plugin's answer").lstrip(": ") == told
    assert not caught.value.about_plugin


@both
def test_a_resource_that_is_named_twice_with_the_same_content_counts_once(
    read: Callable[[dict[str, Any]], Result],
) -> None:
    result = read({"resources": [RES, RES, {**RES, "kind": "L"}]})
    assert [found["kind"] for found in result.resources] == ["K", "L"]


@both
def test_unknown_fields_are_passed_over(read: Callable[[dict[str, Any]], Result]) -> None:
    result = read({"later": 1, "resources": None, "events": [{"type": "t", "later": 2}]})
    assert list(result.events) == [{"type": "t", "later": 2}]
    assert read({}).resources == []


@pytest.mark.parametrize(
    ("status", "needed"),
    [
        ({"resources": [RES]}, "propose.dynamicConfig"),
        ({"directives": [{"op": "mask", "target": TARGET}]}, "propose.dynamicConfig"),
        ({"actionPlans": [PLAN]}, "propose.providerAction"),
        ({"events": [{"type": "seen"}]}, "emit.events"),
    ],
)
def test_what_is_not_declared_may_not_be_proposed(status: dict[str, Any], needed: str) -> None:
    result = of_program(status)
    with pytest.raises(PluginFailed, match=needed) as caught:
        check_capabilities(result, frozenset(("execute.providerAction",)))
    assert caught.value.reason == "capability"
    check_capabilities(result, frozenset((needed,)))
