"""The targets by name, each with the module in `targets` that defines it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tests.fuzz.target import FuzzTarget

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "structured": ("structured-fields", "ranges", "paths"),
    "v1": ("v1-head", "v1-body", "lenient-events"),
    "requests": ("v2-head", "signature-input"),
    "batches": ("batch-lines", "batch-runs"),
    "answers": ("receipts", "link-answers", "error-answers", "questions", "replies", "status-answers", "positions"),
    "exchange": ("exchange", "retry-after", "urls", "addresses"),
    "texts": ("durations", "sizes", "selectors", "yaml", "json", "resources", "json-shapes", "predicates"),
    "storage": ("blocks", "records", "records-of-events", "record-ids"),
    "lake": ("lake-files", "lake-footers", "lake-lines"),
    "streams": (
        *("stream-frames", "stream-messages", "stream-layouts", "stream-payloads", "stream-tokens", "key-sets"),
    ),
    "bodies": (
        *("event-streams", "websocket-frames", "write-bodies", "drain-bodies", "refusals"),
        *("publish-messages", "server-frames"),
    ),
    "plugins": ("plugin-answers", "plugin-frames"),
    "secrets": ("settings-files", "keys", "basic-users", "webhooks"),
    "surfaces": ("emitted-events", "routemaster-bodies", "routemaster-urls", "databases"),
    "history": (
        *("notes", "checkpoints", "tree-entries", "verifier-keys", "tiles", "proof-files", "fork-files"),
        *("tree-proofs", "history-messages", "leaf-hints", "policies"),
    ),
}
"""The modules, each with the names of its targets."""
TARGETS: Final = {name: module for module, names in MODULES.items() for name in names}


def find(name: str) -> FuzzTarget:
    """Return the target with this name; imports its module, and with it the code under test."""
    found: FuzzTarget
    for found in import_module(f"tests.fuzz.targets.{TARGETS[name]}").TARGETS:
        if found.name == name:
            return found
    raise LookupError(name)
