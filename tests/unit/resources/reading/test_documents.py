from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eventd.resources.reading.documents import MAX_BYTES, ReadResult, load_bytes, load_text, read_sources
from eventd.resources.validation.check import check
from tests.unit.resources.samples import EVERYTHING, FEDERATION, GROUP, PEER

ROUTER = """\
apiVersion: routerd.net/v1alpha1
kind: Router
metadata: {name: demo}
spec:
  resources:
"""


def labels(loaded: ReadResult) -> list[str]:
    return [draft.label for draft in loaded.drafts]


def complaints(loaded: ReadResult) -> list[str]:
    return [str(problem) for problem in loaded.problems]


def as_items(*texts: str) -> str:
    lines = [line for text in texts for line in ("-", *(f"  {line}" for line in text.splitlines()))]
    return "".join(f"    {line}\n" for line in lines)


def as_data(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", EVERYTHING),
        ("a.yaml", f"# first\n---\n---\n{EVERYTHING}---\n"),
        ("a.yaml", ROUTER + as_items(GROUP, PEER)),
        ("a.yaml", "- " + EVERYTHING.replace("\n---\n", "\n- ").replace("\n", "\n  ").replace("  - ", "- ")),
        ("a.yaml", f"kind: List\napiVersion: v1\nitems:\n{as_items(GROUP, PEER)}"),
        ("a.json", json.dumps(as_data(EVERYTHING))),
        ("<stdin>", json.dumps({"kind": "List", "items": as_data(EVERYTHING)}, indent="\t")),
        ("<stdin>", "[" + ", ".join(json.dumps(item) for item in as_data(EVERYTHING)) + ",]"),
        ("a.yaml", "\ufeff" + EVERYTHING),
    ],
    ids=["documents", "empty documents", "Router", "sequence", "List", "JSON array", "JSON List", "flow YAML", "BOM"],
)
def test_every_way_to_write_resources_gives_the_same_drafts(name: str, text: str) -> None:
    loaded = load_bytes(name, text.encode())
    assert complaints(loaded) == []
    assert labels(loaded) == ["EventGroup/edge", "EventPeer/cloud"]
    assert [draft.data for draft in loaded.drafts] == as_data(EVERYTHING)


def test_a_router_inside_a_list_is_taken_apart_too() -> None:
    router = {"apiVersion": "routerd.net/v1alpha1", "kind": "Router", "metadata": {"name": "r"}}
    router["spec"] = {"resources": as_data(EVERYTHING)}
    assert labels(load_text("a.json", json.dumps([router]))) == ["EventGroup/edge", "EventPeer/cloud"]


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n---\n", "null\n"])
def test_a_source_with_nothing_in_it_is_no_problem(text: str) -> None:
    assert load_text("a.yaml", text) == ReadResult()
    assert load_text("a.json", "") == ReadResult()


def test_a_draft_names_the_line_of_a_field_in_the_file_not_in_the_resource() -> None:
    loaded = load_text("a.yaml", ROUTER + as_items(GROUP, PEER))
    assert loaded.drafts[1].line_of(("spec", "endpoint")) == 20
    assert loaded.drafts[1].line_of(("spec", "limits", "timeout")) == 17


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1,\n", "a.yaml:2:1: is not valid YAML: "),
        ("just text\n", "a.yaml:1: a resource is a mapping with apiVersion, kind, metadata and spec"),
        ("a: 1\n---\n- b\n", "a.yaml:3: a resource is a mapping with apiVersion, kind, metadata and spec"),
        ("a: 1\na: 2\n", "a.yaml:2:1: the key a stands twice in one mapping, first on line 1"),
        (
            ROUTER.replace("v1alpha1", "v2"),
            "a.yaml:1: Router/demo apiVersion: must be routerd.net/v1alpha1 for a Router",
        ),
        (ROUTER.replace("{name: demo}", "{}"), "a.yaml:3: Router metadata.name: is required"),
        (ROUTER + "  others: 1\n", "a.yaml:6: Router/demo spec.others: unknown field; known here: resources"),
        (
            ROUTER + "extra: 1\n",
            "a.yaml:6: Router/demo extra: unknown field; known here: apiVersion, kind, metadata, spec, status",
        ),
        (ROUTER.rstrip() + " 5\n", "a.yaml:5: Router/demo spec.resources: must be a list of resources"),
        (
            ROUTER.replace("  resources:\n", "  {}\n"),
            "a.yaml:4: Router/demo spec.resources: must be a list of resources",
        ),
        ("kind: List\nitems: {a: 1}\n", "a.yaml:2: List items: must be a list of resources"),
    ],
)
def test_what_holds_no_resources_says_where_and_why(text: str, problem: str) -> None:
    [complaint] = complaints(load_text("a.yaml", text))
    assert complaint.startswith(problem)


def test_what_stands_before_the_broken_place_is_still_read() -> None:
    loaded = load_text("a.yaml", f"{GROUP}---\nkind: [\n")
    assert labels(loaded) == ["EventGroup/edge"]
    assert [problem.line for problem in loaded.problems] == [9]


def test_a_broken_json_file_is_not_mistaken_for_yaml() -> None:
    assert complaints(load_text("a.json", '{"kind": "List",}')) == [
        "a.json:1:17: is not valid JSON: a key in double quotes is expected"
    ]


def test_what_is_not_utf8_or_too_large_is_refused() -> None:
    assert complaints(load_bytes("a.yaml", b"a: 1\nb: \xff\n")) == ["a.yaml:2: is not UTF-8 text"]
    assert complaints(load_bytes("a.yaml", b"#" * (MAX_BYTES + 1))) == [
        "a.yaml: is larger than 16 MiB, the most that is read: split it"
    ]


def test_the_largest_source_is_still_read() -> None:
    assert complaints(load_bytes("a.yaml", GROUP.encode().ljust(MAX_BYTES, b"\n"))) == []


def reader(files: dict[str, str]) -> Callable[[Path], bytes]:
    def read(path: Path) -> bytes:
        if str(path) not in files:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return files[str(path)].encode()

    return read


def test_several_sources_are_read_in_their_order() -> None:
    read = reader({"b.yaml": GROUP, "a.yaml": PEER})
    loaded = read_sources(["b.yaml", "a.yaml", "-"], read=read, read_stdin=lambda: GROUP.encode())
    assert [(draft.source, draft.label) for draft in loaded.drafts] == [
        ("b.yaml", "EventGroup/edge"),
        ("a.yaml", "EventPeer/cloud"),
        ("<stdin>", "EventGroup/edge"),
    ]


def test_a_source_that_cannot_be_read_does_not_hide_the_others() -> None:
    loaded = read_sources(["gone.yaml", "a.yaml", "\0"], read=reader({"a.yaml": "a: [", "\0": ""}))
    assert [problem.source for problem in loaded.problems] == ["gone.yaml", "a.yaml"]
    assert complaints(loaded)[0] == (
        "gone.yaml: cannot be read: no such file or directory"
        " (name a file, or a directory of files, that this user can read)"
    )


def test_an_empty_name_is_not_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(GROUP)
    monkeypatch.chdir(tmp_path)
    loaded = read_sources([""])
    assert not loaded.drafts
    assert [problem.message for problem in loaded.problems] == [
        "no file given: name one, a directory, or - for the standard input"
    ]


def test_a_path_that_cannot_exist_is_a_problem_not_a_crash() -> None:
    [complaint] = complaints(read_sources(["a\0b"]))
    assert complaint.startswith("a\\u0000b: cannot be read: the path is not valid (name a file, ")


def test_the_standard_input_is_read_once() -> None:
    loaded = read_sources(["-", "-"], read_stdin=lambda: GROUP.encode())
    assert labels(loaded) == ["EventGroup/edge"]
    assert complaints(loaded) == ["-: standard input was read already, or is not read by this command: name a file"]
    assert len(read_sources(["-"]).problems) == 1


def test_a_message_stays_on_one_line_whatever_is_in_the_file() -> None:
    text = json.dumps(as_data(ROUTER)[0] | {"spec": {"resources": []}, "\x1b[31m\n": 1})
    assert complaints(load_text("a.json", text)) == [
        'a.json:1: Router/demo ["\\u001b[31m\\u000a"]: unknown field; '
        "known here: apiVersion, kind, metadata, spec, status"
    ]


NAMES = "apiVersion kind metadata spec name items resources List Router EventGroup EventPeer nodeName groupRef auth"
MORE = "keys listen limits types annotations routerd.net/v1alpha1"
WORDS = st.sampled_from([*NAMES.split(), *MORE.split(), FEDERATION])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=6),
    max_leaves=30,
)


@given(TREES)
def test_no_document_raises_anything(tree: Any) -> None:
    for problem in check(load_text("a.json", json.dumps(tree)), []).problems:
        assert problem.message
        assert str(problem).isprintable()


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_raise_anything(content: bytes) -> None:
    for name in ("a.yaml", "a.json"):
        assert all(problem.message for problem in check(load_bytes(name, content), []).problems)


@given(st.text(max_size=300))
def test_no_text_raises_anything_even_with_half_surrogates(text: str) -> None:
    assert all(problem.message for problem in check(load_text("a.yaml", text), []).problems)


@given(st.data())
def test_a_good_file_that_was_damaged_raises_nothing(data: st.DataObject) -> None:
    text = ROUTER + as_items(GROUP, PEER)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    damaged = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    assert all(problem.message for problem in check(load_text("a.yaml", damaged), []).problems)


def test_the_sources_of_a_command_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.resources.reading.documents.MAX_TOTAL_BYTES", len(GROUP) + len(PEER))
    asked: list[Path] = []

    def read(path: Path) -> bytes:
        asked.append(path)
        return (GROUP if path.name == "a.yaml" else PEER).encode()

    assert not read_sources(["a.yaml", "b.yaml"], read=read).problems
    loaded = read_sources(["a.yaml", "b.yaml", "c.yaml", "d.yaml"], read=read)
    assert [problem.source for problem in loaded.problems] == ["c.yaml and what was read before"]
    assert Path("d.yaml") not in asked
