"""Templates of `-o jsonpath=…`."""

from __future__ import annotations

import pytest

from eventd.cli.terminal.jsonpath import Template
from eventd.cli.terminal.output import Output
from eventd.errors import Invalid

PEER = {"metadata": {"name": "cloud"}, "spec": {"endpoint": "http://10.0.0.7", "types": ["a", "b"], "relay": True}}
HUB = {"metadata": {"name": "hub"}, "spec": {"endpoint": "http://10.0.0.8", "types": [], "relay": False}}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.metadata.name}", "cloud"),
        (".metadata.name", "cloud"),
        ("$.metadata.name", "cloud"),
        ("{metadata.name}", "cloud"),
        ("{.metadata.name} at {.spec.endpoint}", "cloud at http://10.0.0.7"),
        ("{.spec.types}", '["a", "b"]'),
        ("{.spec.types[*]}", "a b"),
        ("{.spec.relay}", "true"),
        ("{.spec.none}", ""),
        ('{.metadata.name}{"\\t"}{.spec.relay}{"\\n"}', "cloud\ttrue\n"),
        ("{'it\\'s '}{.metadata.name}", "it's cloud"),
        ('{"{}"}', "{}"),
        ('{.spec.types[?(@ == "b")]}', "b"),
    ],
)
def test_a_template_shows_what_its_queries_match(template: str, text: str) -> None:
    assert Template(template).render(PEER) == text


@pytest.mark.parametrize(
    ("template", "absent"),
    [
        ("{.items[*].metadata.name}", ["items"]),
        ("{range .items[*]}{.metadata.name}{end}", ["items"]),
        ("{.spec.none} {[*].name} {.metadata.name}", []),
    ],
)
def test_a_member_that_the_output_does_not_have_is_noted(
    capsys: pytest.CaptureFixture[str], template: str, absent: list[str]
) -> None:
    assert Template(template).absent_members(PEER) == absent
    assert Template(template).absent_members([PEER]) == []
    Output(f"jsonpath={template}", headers=True, colour=False).value(PEER)  # type: ignore[arg-type]
    expected = "note: the output has no member items; it has metadata, spec\n" if absent else ""
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("items", ["[*]", ".items[*]"], ids=["a list", "a list by kubectl's name"])
def test_a_range_repeats_its_steps_for_each_match(items: str) -> None:
    template = Template(f'{{range {items}}}{{.metadata.name}}={{.spec.types[*]}}{{"\\n"}}{{end}}')
    assert template.render([PEER, HUB]) == "cloud=a b\nhub=\n"


def test_ranges_are_nested() -> None:
    template = Template("{range [*]}{.metadata.name}:{range .spec.types[*]}<{@}>{end};{end}")
    assert template.render([PEER, HUB]) == "cloud:<a><b>;hub:;"


def test_a_member_named_items_of_an_object_is_that_member() -> None:
    assert Template("{.items[*]}").render({"items": [1, 2]}) == "1 2"


def test_values_cannot_control_a_terminal() -> None:
    assert Template("{.a}").render({"a": "x\x1b[2J\ny"}) == "x\\x1b[2J\ny"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "is empty"),
        ("{.a", "unbalanced braces"),
        ("a}", "unbalanced braces"),
        ("{.a[}", "cannot read the JSONPath '.a['"),
        ("{range [*]}{.a}", "lacks {end}"),
        ("{end}", "{end} without"),
        ('{"\\q"}', "cannot read the text"),
        ("x" * 5000, "at most 4096 characters"),
    ],
)
def test_a_template_that_cannot_be_parsed_is_refused_with_its_place(template: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        Template(template)
    assert message in str(refused.value)


@pytest.mark.parametrize("query", [".a" * 2000, "[?" * 900])
def test_a_query_of_too_many_steps_is_refused(query: str) -> None:
    with pytest.raises(Invalid, match=r"too many steps|cannot read the JSONPath"):
        Template(f"{{{query}}}").render({"a": 1})
