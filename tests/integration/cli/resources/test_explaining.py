"""routerctl explain, api-resources: without a node."""

from __future__ import annotations

import json

from tests.integration.cli.conftest import Control


def test_the_kinds_are_listed_with_the_names_that_commands_accept(control: Control) -> None:
    lines = [line.split() for line in control("api-resources").lines]
    assert lines[0] == ["NAME", "SHORTNAMES", "APIVERSION", "KIND"]
    assert ["eventpeers", "peer,peers,ep", "federation.routerd.net/v1alpha1", "EventPeer"] in lines


def test_a_section_is_explained_with_the_fields_in_it(control: Control) -> None:
    shown = control("explain", "ep.spec.retry").out
    assert "FIELD:      spec.retry <section>" in shown
    assert "  baseBackoff <duration; default: 200ms>\n      The wait after the first failure.\n" in shown


def test_a_kind_is_explained_down_to_its_sections_unless_all_is_asked_for(control: Control) -> None:
    assert "secretFile" not in control("explain", "EventGroup").out
    assert "secretFile" in control("explain", "EventGroup", "--recursive").out


def test_the_fields_are_shown_as_json_and_by_a_template(control: Control) -> None:
    fields = json.loads(control("explain", "ep.limits", "-o", "json").out)
    assert fields[0] == {
        "path": "spec.limits",
        "type": "section",
        "required": False,
        "default": "",
        "description": "Limits of the requests to the peer.",
    }
    assert control("explain", "ep.limits.timeout", "-o", "jsonpath={[0].default}").out == "30s\n"


def test_unknown_kinds_and_fields_are_refused_with_a_next_step(control: Control) -> None:
    refused = control("explain", "EventPear", code=3)
    assert refused.err == "error: unknown kind EventPear (did you mean EventPeer?)\n"
    assert "did you mean spec.limits?" in control("explain", "ep.spec.limit", code=3).err


def test_a_template_that_cannot_be_parsed_is_a_wrong_command_line(control: Control) -> None:
    refused = control("api-resources", "-o", "jsonpath={.a", code=2)
    assert "unbalanced braces" in refused.err
