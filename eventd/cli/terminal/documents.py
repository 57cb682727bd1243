"""Reads files, unchanged or as values in YAML or JSON; `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from eventd.errors import Invalid


def read_input(filename: str, most: int) -> bytes:
    """Return up to `most` + 1 bytes of a file, or of standard input for `-`: enough to notice that it is too large.

    Raises OSError.
    """
    if filename == "-":
        return sys.stdin.buffer.read(most + 1)
    with Path(filename).open("rb") as file:
        return file.read(most + 1)


def read_documents(filename: str) -> list[Any]:
    """Return the documents of a file, without empty ones. Raises `Invalid` with the file and any malformed line."""
    from eventd.resources.reading.documents import MAX_BYTES
    from eventd.resources.reading.nodes import Flaws, ParseError, plain
    from eventd.resources.reading.yaml_text import read_yaml

    name = "<stdin>" if filename == "-" else filename
    try:
        raw = read_input(filename, MAX_BYTES)
        if len(raw) > MAX_BYTES:
            raise Invalid(f"{name}: is larger than {MAX_BYTES >> 20} MiB, the most that is read")
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise Invalid(f"{name}: {why}") from None
    flaws = Flaws()
    try:
        documents = [plain(node) for node in read_yaml(text, flaws)]  # JSON is YAML, too
    except ParseError as error:
        raise Invalid(f"{name}: line {error.line}: {error.message}") from None
    for flaw in flaws:
        raise Invalid(f"{name}: line {flaw.line}: {flaw.message}")
    return [document for document in documents if document is not None]
