"""Files of public keys, whatever they contain, are judged in a time that grows with their length and not faster."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eventd.cli.program.key_files import LONGEST_KEY_FILE, read_public_keys
from eventd.errors import SecretUnreadable


@pytest.mark.parametrize("unit", [b"\n", b" ", b"-", b"{", b"-----BEGIN A-----", b"-----BEGIN "])
def test_a_file_without_a_key_is_refused_at_once(tmp_path: Path, unit: bytes) -> None:
    file = tmp_path / "auditor.pub"
    file.write_bytes(unit * ((LONGEST_KEY_FILE - 1) // len(unit)))
    begun = time.process_time()
    with pytest.raises(SecretUnreadable):
        read_public_keys([file])
    assert time.process_time() - begun < 2


def test_resources_are_recognized_after_blank_lines_and_brackets(tmp_path: Path) -> None:
    for text in ("\n\n  - kind: EventGroup\n", '{\n\n"apiVersion": "x"}', '- {"kind": "x"}', "--- \nkind: x"):
        file = tmp_path / "documents"
        file.write_text(text)
        with pytest.raises(SecretUnreadable, match="holds resources"):
            read_public_keys([file])
