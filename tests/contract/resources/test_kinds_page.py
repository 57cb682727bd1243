"""The reference page and the JSON Schema match the models: every field, its default, and examples that apply."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from eventd.resources.kinds.registry import KINDS, Kind
from eventd.resources.kinds.schema import kind_schema
from eventd.resources.kinds.spec import SpecField, defaults_of, name_of, section_of, walk
from eventd.resources.reading.documents import load_text
from eventd.resources.validation.check import check

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "kinds.md").read_text(encoding="utf-8")
FIELDS = [(kind, field) for kind in KINDS.values() for field in walk(kind.spec)]
LEAVES = [(kind, field) for kind, field in FIELDS if not section_of(field.info)]


def title(case: object) -> str:
    return case.path if isinstance(case, SpecField) else getattr(case, "name", "")


def table_of(kind: Kind) -> dict[str, list[str]]:
    """The rows of a kind's table by field: type, default, rule."""
    section = PAGE.partition(f"\n## {kind.name}\n")[2].partition("\n## ")[0]
    section = section.partition("| Field | Type | Default | Rule |")[2].partition("\n\n")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:3] == "| `"
    ]
    return {row[0].strip("| `"): [cell.strip(" |") for cell in row[1:]] for row in cells}


@pytest.mark.parametrize(("kind", "field"), LEAVES, ids=title)
def test_every_field_is_described(kind: Kind, field: SpecField) -> None:
    table = table_of(kind)
    assert field.path in table, f"docs/reference/kinds.md lacks {field.path} in the table of {kind.name}"
    assert all(table[field.path])


@pytest.mark.parametrize(("kind", "field"), LEAVES, ids=title)
def test_every_default_is_the_one_described(kind: Kind, field: SpecField) -> None:
    default = table_of(kind)[field.path][1]
    if field.info.is_required():
        assert default == "required"
        return
    value = defaults_of(field.section).get(name_of(field.info))
    written = ", ".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value
    if written in (None, "", {}):
        assert not default.startswith("`")
    else:
        assert default.startswith(f"`{written}`")


@pytest.mark.parametrize("kind", KINDS.values(), ids=title)
def test_no_field_is_described_that_is_not_there(kind: Kind) -> None:
    assert set(table_of(kind)) == {field.path for other, field in LEAVES if other is kind}


def test_every_example_of_the_page_can_be_applied() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(examples) >= 4
    for example in examples:
        loaded = load_text("kinds.md", example)
        assert loaded.drafts
        assert check(loaded, []).problems == ()


def test_the_example_of_callbacks_can_be_applied() -> None:
    text = (ROOT / "docs" / "examples" / "callbacks" / "callback.yaml").read_text(encoding="utf-8")
    edge = re.search(r"```yaml\n(.*?)---\n", PAGE, flags=re.DOTALL)
    assert edge is not None
    loaded = load_text("edge.yaml", edge[1]) + load_text("callback.yaml", text)
    assert [draft.label for draft in loaded.drafts] == [
        "EventGroup/edge",
        "EventCallback/billing",
        "EventCallback/stock",
    ]
    assert check(loaded, []).problems == ()


def test_every_field_stands_in_an_example() -> None:
    examples = "\n".join(re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL))
    for _, field in FIELDS:
        assert re.search(rf"\b{field.path.rpartition('.')[2]}:", examples), f"no example shows {field.path}"


@pytest.mark.parametrize("kind", KINDS.values(), ids=title)
def test_every_field_is_in_the_schema_with_words_and_default(kind: Kind) -> None:
    schema = kind_schema(kind)
    for field in walk(kind.spec):
        found = properties_of(schema, field.path)
        assert field.info.description
        assert "title" not in found
        if not section_of(field.info):
            assert found["description"] == field.info.description
            assert "anyOf" in found or "type" in found


def properties_of(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of a field, references followed."""
    found = schema["properties"]["spec"]
    for step in path.split("."):
        if "$ref" in found:
            found = schema["$defs"][found["$ref"].rpartition("/")[2]]
        found = found["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            found = found["items"]
    return dict(found)


def test_the_schema_gives_defaults_as_people_write_them() -> None:
    group, peer = kind_schema(KINDS["EventGroup"]), kind_schema(KINDS["EventPeer"])
    assert properties_of(group, "replayWindow")["default"] == "5m0s"
    assert properties_of(group, "limits.maxEventBytes")["default"] == "1MiB"
    assert properties_of(peer, "relay")["default"] is False
    assert "default" not in properties_of(group, "retention")
    assert group["properties"]["kind"] == {"const": "EventGroup"}
    assert group["$defs"]["AuthKey"]["anyOf"] == [{"required": ["owner"]}, {"required": ["node"]}]
    assert group["properties"]["spec"]["required"] == ["nodeName"]
    assert group["properties"]["spec"]["additionalProperties"] is False


def test_the_page_lists_every_kind_with_its_api_version() -> None:
    for kind in KINDS.values():
        assert f"\n| [{kind.name}](#{kind.name.lower()}) | `{kind.api_version}` | " in PAGE


def test_every_kind_has_an_example() -> None:
    for kind in KINDS.values():
        section = PAGE.partition(f"\n## {kind.name}\n")[2].partition("\n## ")[0]
        assert re.search(rf"```yaml\n(?:.*\n)*?kind: {kind.name}\n", section), f"no example shows {kind.name}"


@pytest.mark.parametrize("kind", KINDS.values(), ids=title)
def test_the_page_and_the_program_say_the_same_of_each_kind(kind: Kind) -> None:
    assert f"| [{kind.name}](#{kind.name.lower()}) | `{kind.api_version}` | {kind.declares} |" in PAGE
