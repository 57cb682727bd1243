"""Reads the keys that receipts are verified with from EventGroup documents, as nodes have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from eventd.audit.receipts.receipt_terms import ReceiptKey
from eventd.audit.report.documents import read_documents
from eventd.errors import Invalid
from eventd.resources.group_configuration import group_of
from eventd.resources.keyring import load_ring
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.runtime.regular_files import NotRegular, read_regular

_KEY: Final = re.compile(rb"\s*(-----BEGIN |[A-Za-z0-9+/]{43}=\s*\Z)")
"""Matches the beginning of a file that holds a key itself: PEM, or 32 bytes in base64."""
_LONGEST_BEGINNING: Final = 1 << 10


def read_receipt_keys(paths: Sequence[str], credentials: Path | None = None) -> tuple[ReceiptKey, ...]:
    """Return the keys of all EventGroups in files or folders, sorted by group and id, without revoked keys.

    `credentials`: the service manager's folder, for keys in `credential:NAME`. Raises Invalid with file and line of an
    invalid document, for the file of a key instead of a document, for paths without any key, and for two different
    keys of a group with one id; SecretUnreadable, which names group and file, for a file that holds no such key.
    """
    for path in paths:
        _refuse_key(path)
    found: dict[tuple[str, str], ReceiptKey] = {}
    for name, spec, draft in read_documents(paths, EventGroupSpec) if paths else ():
        for key in load_ring(group_of(name, spec), credentials).keys:
            known = ReceiptKey.of(name, key)
            if key.usable and found.setdefault((name, key.id), known) != known:
                raise Invalid(
                    f"{draft.source}: EventGroup {name} has another key {key.id!r} than a file before it",
                    hint="give each key id one meaning: leave one of the files out",
                )
    if paths and not found:
        raise Invalid(
            f"{', '.join(paths)}: no EventGroup with a key",
            hint="write an EventGroup with the keys of all members under spec.auth.keys",
        )
    return tuple(found[place] for place in sorted(found))


def _refuse_key(path: str) -> None:
    """Raise Invalid if a file holds a key itself, as `audit verify-report` takes it. Shows nothing of its content."""
    with suppress(OSError, NotRegular):  # reported when the documents are read; folders are allowed
        if _KEY.match(read_regular(Path(path), _LONGEST_BEGINNING).content):
            raise Invalid(
                f"{path} holds a key, and not an EventGroup that names the owner and the id of the key",
                hint=f"write an EventGroup with publicKeyFile: {path} under spec.auth.keys, and name its file",
            )
