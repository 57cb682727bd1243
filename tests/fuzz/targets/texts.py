"""Texts that people write: durations, sizes, selectors, YAML, JSON and resources."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from eventd.api.bodies.json_shape import count_elements, require_modest
from eventd.errors import Invalid, TooLarge
from eventd.log.topics.predicate import parse as parse_predicate
from eventd.resources.reading.documents import load_bytes
from eventd.resources.reading.json_text import read_json
from eventd.resources.reading.nodes import MAX_DEPTH, MAX_VALUES, Flaws, Node, ParseError, plain
from eventd.resources.reading.yaml_text import read_yaml, write_yaml
from eventd.resources.validation.check import check
from eventd.text.duration import LONGEST, BadDuration, brief_duration, format_duration, parse_duration
from eventd.text.size import LARGEST, BadSize, format_size, parse_size
from federation.selector import Selector
from tests.fuzz.target import FuzzTarget


def check_duration(data: bytes) -> None:
    try:
        found = parse_duration(data.decode("utf-8", "replace"))
    except BadDuration:
        return
    assert abs(found) <= LONGEST
    assert parse_duration(format_duration(found)) == found
    assert parse_duration(brief_duration(found)) == found


def check_size(data: bytes) -> None:
    try:
        found = parse_size(data.decode("utf-8", "replace"))
    except BadSize:
        return
    assert 0 <= found <= LARGEST
    assert parse_size(format_size(found)) == found


def check_selector(data: bytes) -> None:
    try:
        found = Selector.from_json(data)
    except ValueError:
        return
    assert Selector.from_json(found.to_json()) == found
    again = Selector.of(
        types=found.types, subject_prefixes=found.subject_prefixes, sources=found.sources, payload=dict(found.payload)
    )
    assert not again.widens(again)
    assert not again.widens(Selector())
    for name in again.types[:3]:
        event = {"type": f"{name[:-1]}x" if name.endswith(".*") else name, "subject": "s", "source": "n"}
        assert again.takes_type(event["type"])
        if again.matches(**event):
            assert Selector().matches(**event)


def documents_of(text: str, *, as_json: bool) -> list[Node] | None:
    """Return the documents of a text; None if it has a mistake. Each is within its bounds."""
    flaws = Flaws()
    try:
        found = [read_json(text, flaws)] if as_json else [*read_yaml(text, flaws)]
    except ParseError:
        return None
    assert sum(node.size for node in found) <= MAX_VALUES
    assert all(node.height <= MAX_DEPTH + 1 for node in found)
    return None if flaws else found


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, and of equal types; a number that is none equals itself."""
    return repr(one) == repr(other)


def check_yaml(data: bytes) -> None:
    for node in documents_of(data.decode("utf-8", "replace"), as_json=False) or ():
        value = plain(node)
        written = write_yaml(value)
        again = documents_of(written, as_json=False)
        assert again is not None
        assert len(again) == 1
        assert same(plain(again[0]), value), written


def check_json(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    found = documents_of(text, as_json=True)
    if found is None:
        return
    value = plain(found[0])
    # What is read here is what the standard library reads, and as YAML it means the same.
    assert same(json.loads(text), value)
    if "Infinity" in json.dumps(value):  # a number beyond every double
        return
    written = documents_of(json.dumps(value), as_json=True)
    assert written is not None
    assert same(plain(written[0]), value)


def check_resources(data: bytes) -> None:
    loaded = load_bytes("file.yaml", data)
    result = check(loaded, [])
    assert all(problem.message for problem in loaded.problems)
    for one in loaded.drafts[:5]:
        assert one.line_of(()) >= 1
    del result


def check_shape(data: bytes) -> None:
    """What a body is refused for before it is decoded: too many values or levels, counted as the decoder would."""
    try:
        require_modest(data, 30)
    except (Invalid, TooLarge):
        return
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    assert _values(value) <= 31
    if isinstance(value, dict):
        longest = max((len(each) for each in value.values() if isinstance(each, list)), default=0)
        assert count_elements(data, 1000) >= longest


def _values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_values, inner))


def check_predicate(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        found = parse_predicate(value)
    except Invalid:
        return
    assert parse_predicate(found.shown()) == found
    assert found.matches(found.text)
    assert not found.matches(None)


def duration_seeds() -> Iterable[bytes]:
    yield from (b"1h30m", b"-1.5s", b"200ms", b"7d", b"292y", "5µs".encode(), b"0", b"2562047h47m16.854775807s", b"2w")


def size_seeds() -> Iterable[bytes]:
    yield from (b"8MiB", b"10kB", b"9223372036854775807", b"1 GiB", b"1gib", b"8388608TiB")


def selector_seeds() -> Iterable[bytes]:
    yield b'{"types":["a.*","*"],"subjectPrefixes":["10."],"sources":["n"],"payload":[["k","v"]]}'


def yaml_seeds() -> Iterable[bytes]:
    yield b"a: 1\nb: [x, 'y', \"z\\u0041\", ~, true, 0x1F, 1.5e3, .inf]\nc: |\n  text\n  more\n"
    yield b"base: &b {x: 1}\nother:\n  <<: *b\n  y: [*b, *b]\n---\n- - a\n- ? k\n  : v\n"
    yield b"a: &a [x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n"
    yield b"%YAML 1.2\n--- !!str 12\n...\n--- !x y\n"


def json_seeds() -> Iterable[bytes]:
    yield b'{"a":[1,-2.5e3,true,null,"\\u00e9\\ud83d\\ude00"],"b":{"c":{}}}'
    yield b'{"a":1,"a":2,"b":"\\ud800","c":NaN}'
    yield b"[" * 70


def resource_seeds() -> Iterable[bytes]:
    yield (
        b"apiVersion: federation.routerd.net/v1alpha1\nkind: EventGroup\nmetadata: {name: edge}\n"
        b"spec:\n  nodeName: a\n  secretFile: /x\n  listen: {address: 127.0.0.1, port: 1}\n  retention: {maxAge: 7d}\n"
    )
    yield b"apiVersion: routerd.net/v1alpha1\nkind: Router\nmetadata: {}\nspec: {resources: [{kind: EventPeer}]}\n"
    yield b'{"kind":"List","apiVersion":"v1","items":[{"apiVersion":"x/v1","kind":"EventSubscription","metadata":{}}]}'


def predicate_seeds() -> Iterable[bytes]:
    yield from (b'"a*"', b'["tag","Eq","x"]', b'["tag","Glob","x*"]', b'["tag","Glob","x"]', b'["node","Eq","x"]')


_JSON = ("null", "true", '\\ud800"', "1e999", '":', "[[", "{}", "[],")
TARGETS = (
    FuzzTarget("durations", check_duration, duration_seeds, ("ns", "µs", "ms", "h", "d", "1.5")),
    FuzzTarget("sizes", check_size, size_seeds, ("KiB", "TiB", "kB", "TB")),
    FuzzTarget(
        "selectors", check_selector, selector_seeds, ('"types":[', '"subjectPrefixes":[', '.*"', '"payload":[[')
    ),
    FuzzTarget(
        "yaml", check_yaml, yaml_seeds, ("&a", "*a", "<<: ", "!!str ", "---\n", "? ", ": ", "- ", "|\n  ", ">-")
    ),
    FuzzTarget("json", check_json, json_seeds, _JSON),
    FuzzTarget(
        "resources",
        check_resources,
        resource_seeds,
        ("apiVersion: ", "kind: EventGroup", "kind: EventPeer", "metadata: ", "spec: ", "name: ", "kind: EventPlugin"),
    ),
    FuzzTarget("json-shapes", check_shape, json_seeds, _JSON),
    FuzzTarget("predicates", check_predicate, predicate_seeds, ('"tag"', '"Eq"', '"Glob"', '*"')),
)
