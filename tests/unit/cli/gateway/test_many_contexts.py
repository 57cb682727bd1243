"""Which nodes a command shows that takes several contexts."""

from __future__ import annotations

import pytest

from eventd.cli.gateway.contexts import NodeContext, in_context


@pytest.mark.parametrize(
    ("places", "names"),
    [
        ({"context": "COMMANDLINE"}, "a,b"),
        ({"context": "ENVIRONMENT"}, "a,b"),
        ({"context": "ENVIRONMENT", "server": "ENVIRONMENT"}, "a,b"),
        ({"context": "ENVIRONMENT", "server": "COMMANDLINE"}, ""),
    ],
)
def test_a_server_on_the_command_line_precedes_contexts_of_a_variable(places: dict[str, str], names: str) -> None:
    node = NodeContext("a,b", "http://x").choice()
    assert in_context(node, places, many=True).context == names
