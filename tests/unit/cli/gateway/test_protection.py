"""What a protected context asks before: plain questions, for operations that exist."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from unittest.mock import patch

import pytest

import eventd.cli
from eventd.api.framework.endpoint import load
from eventd.api.routes import OPERATIONS
from eventd.cli.gateway import protection
from eventd.cli.gateway.contexts import NodeContext
from eventd.cli.gateway.protection import ENDING, confirm_operation
from eventd.errors import Forbidden

NODE = NodeContext("prod", "http://x", protected=True).choice()


@pytest.mark.parametrize("operation", ENDING)
def test_a_question_names_parameters_of_its_operation(operation: str) -> None:
    model = load(OPERATIONS[operation]).params
    fields = model.model_fields if model else {}
    assert {name for _, name, _, _ in Formatter().parse(ENDING[operation]) if name} <= fields.keys()


def test_a_question_is_a_sentence() -> None:
    asked: list[str] = []
    with patch.object(protection, "can_ask", lambda: True), patch.object(protection, "confirm", asked.append):
        confirm_operation(NODE, "links.pause", {"group": "edge", "peer": "cloud", "by": "ada"})
        confirm_operation(NODE, "links.resume", {"group": "edge", "peer": "cloud"})
    assert asked == ["The context prod is protected. Pause the link of the group edge to cloud?"]


def test_without_a_terminal_the_refusal_says_what_was_not_done() -> None:
    with patch.object(protection, "can_ask", lambda: False), pytest.raises(Forbidden) as refused:
        confirm_operation(NODE, "keys.revoke", {"name": "ci"})
    assert refused.value.message == (
        "there is no terminal to ask on whether to revoke the key ci: the context prod is protected, and nothing was"
        " changed"
    )
    assert refused.value.hint == "run the command on a terminal, or add --yes"


def asking_commands() -> Iterator[tuple[str, bool]]:
    """Yield each command that may ask, with whether it is marked so that it takes `--yes`."""
    for file in Path(eventd.cli.__path__[0]).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list:
                source = ast.get_source_segment(text, node) or ""
                if "session.confirm_ending(" in source or any(f'"{operation}"' in source for operation in ENDING):
                    marks = [mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)]
                    yield f"{file.stem}.{node.name}", "may_ask" in marks


def test_each_command_that_may_ask_takes_yes() -> None:
    found = dict(asking_commands())
    assert len(found) > 20
    assert [name for name, is_marked in found.items() if not is_marked] == []
