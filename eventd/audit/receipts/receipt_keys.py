"""Reads the keys that receipts are verified with from EventGroup documents, as nodes have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eventd.audit.receipts.receipt_terms import ReceiptKey
from eventd.audit.report.documents import read_documents
from eventd.errors import Invalid
from eventd.resources.configuration import group_of
from eventd.resources.keyring import load_ring
from eventd.resources.kinds.event_group import EventGroupSpec


def read_receipt_keys(paths: Sequence[str], credentials: Path | None = None) -> tuple[ReceiptKey, ...]:
    """Return the keys of all EventGroups in files or folders, sorted by group and id, without revoked keys.

    `credentials`: the service manager's folder, for keys in `credential:NAME`. Raises Invalid with file and line of an
    invalid document, for paths without any key, and for two different keys of a group with one id; SecretUnreadable,
    which names group and file, for a file that holds no such key.
    """
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
