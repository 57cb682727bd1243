"""A program that prints the API key."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eventd.cli.gateway.key_command import ask_for_key
from eventd.errors import Invalid

ASK = "from eventd.cli.gateway.key_command import ask_for_key; print(ask_for_key(('sh', '-c', 'cat; echo key')))"


def test_the_program_does_not_read_what_is_piped_into_the_command() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], input="an event", capture_output=True, text=True, check=True)
    assert done.stdout == "key\n"


@pytest.mark.parametrize("prints", ["true", "printf '\\377'", "head -c 5000 /dev/zero | tr '\\0' x"])
def test_what_is_not_a_key_is_refused_without_being_shown(prints: str) -> None:
    with pytest.raises(Invalid, match=r"^sh does not print a key"):
        ask_for_key(("sh", "-c", prints))
