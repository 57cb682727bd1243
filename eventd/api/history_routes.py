"""The routes of the verifiable history: its operations under /api/v1, and the files of trees under /log."""

from __future__ import annotations

from typing import Final

from eventd.api.framework.route import BodyLimits, Route

_GROUP: Final = "/api/v1/groups/{group}"

HISTORY_OPERATIONS: Final[dict[str, Route]] = {
    "history.status": Route(
        "GET",
        "/api/v1/history",
        ("look",),
        "Show the trees of groups, and how far each is sealed",
        "admin.history.group_trees:show_status",
        withheld=("damage",),
    ),
    "history.keys": Route(
        "GET",
        f"{_GROUP}/history/keys",
        ("look",),
        "Show the public keys that verify the trees of a group",
        "admin.history.group_trees:show_keys",
    ),
    "history.checkpoint": Route(
        "GET",
        f"{_GROUP}/history/checkpoint",
        ("look",),
        "Show a signed checkpoint of a tree",
        "admin.history.checkpoints:show_checkpoint",
    ),
    "history.consistency": Route(
        "GET",
        f"{_GROUP}/history/consistency",
        ("look",),
        "Prove that a tree begins with all leaves of a smaller one",
        "admin.history.checkpoints:show_consistency",
    ),
    "history.witnesses": Route(
        "GET",
        f"{_GROUP}/history/witnesses",
        ("look",),
        "Show who cosigns the trees of a group, what is held of the trees of others, and findings",
        "admin.history.witnesses:show_witnesses",
        withheld=("detail",),
    ),
    "history.findings": Route(
        "GET",
        f"{_GROUP}/history/findings",
        ("look",),
        "List findings about trees, newest first",
        "admin.history.witnesses:list_findings",
        withheld=("detail",),
    ),
    "history.finding": Route(
        "GET",
        f"{_GROUP}/history/findings/{{id}}",
        ("read",),
        "Show a finding about a tree, with the notes that it rests on",
        "admin.history.witnesses:show_finding",
    ),
    "history.reset": Route(
        "POST",
        f"{_GROUP}/history/witnesses/{{node}}/reset",
        ("admin",),
        "Confirm the findings about a node, and forget its keys and what is held of its trees",
        "admin.history.witnesses:reset",
        BodyLimits(1 << 20, values=20_000),
    ),
    "history.rotate": Route(
        "POST",
        "/api/v1/history/rotate",
        ("admin",),
        "Replace the key that signs the trees of this node",
        "admin.history.rotation:rotate",
        BodyLimits(1 << 20, values=20_000),
        outside=True,
    ),
    "history.tiles": Route(
        "GET",
        f"{_GROUP}/history/tiles",
        ("read",),
        "Read tiles of a tree",
        "admin.history.checkpoints:show_tiles",
    ),
    "history.leaf": Route(
        "GET",
        f"{_GROUP}/events/{{id}}/leaf",
        ("read",),
        "Show the tree and the leaf of an event",
        "admin.history.event_proofs:show_leaf",
    ),
    "history.prove": Route(
        "GET",
        f"{_GROUP}/events/{{id}}/proof",
        ("read",),
        "Prove an event: a file that a third party checks with public keys",
        "admin.history.event_proofs:prove",
    ),
    "history.prove_at_peer": Route(
        "POST",
        f"{_GROUP}/peers/{{peer}}/prove",
        ("read",),
        "Ask a peer to prove an event that came from it",
        "admin.history.peer_proofs:prove",
        BodyLimits(1 << 20, values=20_000),
    ),
}
"""By the name of the operation; part of `OPERATIONS`."""

_LOG_FILE: Final = Route(
    "GET",
    "/log/{group}/{tree}/{file}",
    ("read",),
    "Read a file of a tree in the layout of C2SP tlog-tiles",
    "admin.history.checkpoints:read_log_file",
    media="application/octet-stream",
    deep=True,
)
LOG_FILES: Final = (_LOG_FILE, _LOG_FILE._replace(method="HEAD"))
