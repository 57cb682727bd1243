"""Reads files of values as YAML or JSON; `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from eventd.errors import Invalid


def read_documents(filename: str) -> list[Any]:
    """Return the documents of a file, without empty ones. Raises `Invalid` with the file and any malformed line."""
    from eventd.resources.reading.documents import MAX_BYTES, read_file
    from eventd.resources.reading.nodes import Flaws, ParseError, plain
    from eventd.resources.reading.yaml_text import read_yaml

    name = "<stdin>" if filename == "-" else filename
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if filename == "-" else read_file(Path(filename))
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
