"""routerctl log: status, checkpoint, consistency, keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from eventd.cli.gateway.selecting import GroupOption, GroupsOption, one_group
from eventd.cli.gateway.session import Session, connected, connected_without_table, only_calls
from eventd.cli.history.kept_checkpoint import read_kept
from eventd.cli.history.lake_trees import (
    TREES_OF_LAKE,
    FromLakeOption,
    checkpoint_of_lake,
    consistency_of_lake,
    keys_of_lake,
    trees_of_lake,
)
from eventd.cli.history.prove import OutOption
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.errors import CheckFailed, Invalid, NotFound
from eventd.text.plural import counted
from eventd.text.size import format_size

if TYPE_CHECKING:
    from federation.history.notes import NoteKey, SignedNote

TREES = (
    Column("GROUP", text("group")),
    Column("NODE", lambda row: str(row["origin"]).split("/")[2]),
    Column("TREE", text("tree")),
    Column("STATE", lambda row: _state(row)),
    Column("SIZE", text("size")),
    Column("UNSEALED", text("unsealed")),
    Column("SIGNED", moment("signedAt")),
    Column("SIGNATURES", text("signatures")),
    Column("OPENED", moment("openedAt"), wide=True),
    Column("REASON", text("reason"), wide=True),
    Column("TILES", lambda row: format_size(row["tileBytes"]), wide=True),
    Column("ORIGIN", text("origin"), wide=True),
    Column("DAMAGE", text("damage"), wide=True),
)
TreeOption = Annotated[
    str,
    typer.Option(
        "--tree", metavar="ID", help="Id or origin of the tree (default: the tree that grows, or the newest)."
    ),
]


async def call_of_tree(session: Session, operation: str, origin: str, **params: Any) -> dict[str, Any]:
    """Call an operation on the tree with this origin. Raises NotFound.

    A node of an earlier release knows trees by their ids only, which several nodes may have given to a tree.
    """
    try:
        answer: dict[str, Any] = await session.call(operation, tree=origin, **params)
    except NotFound as unknown:
        try:
            answer = await session.call(operation, tree=origin.rsplit("/", 1)[-1], **params)
        except NotFound:
            raise unknown from None
        if answer["origin"] != origin:
            raise
    return answer


def _state(row: Mapping[str, Any]) -> str:
    if row["damage"]:
        return "damaged"
    if row["relayed"]:
        return "unproven" if row.get("unproven") else "relayed"
    return "open" if row["open"] else "ended"


@connected
@only_calls
async def status(session: Session, group: GroupsOption = "", lake: FromLakeOption = "") -> None:
    """List the trees of groups, the newest first of each."""
    if lake:
        session.out.rows(TREES_OF_LAKE, trees_of_lake(lake, group), name=lambda row: str(row["origin"]))
        return
    groups = (await session.call("history.status", group=group))["groups"]
    rows = [
        {"group": one["group"], "relayed": kind == "relayed", **tree}
        for one in groups
        for kind in ("trees", "relayed")
        for tree in one.get(kind, ())  # a node of an earlier release names none that it relays
    ]
    session.out.rows(TREES, rows, name=lambda row: str(row["origin"]))
    for one in groups:
        if session.out.is_table and one.get("waiting"):
            listing = f"routerctl federation event list --group {one['group']} --history waiting --include-expired"
            events = counted(one["waiting"], "event of another node", "events of other nodes")
            at_least = "" if one.get("waitingIsExact", True) else "at least "
            note(f"note: group {one['group']}: {at_least}{events} waiting for the check; to list: {listing}")
    if session.out.is_table and not rows:
        note("note: no group keeps a history; set history.mode: record in an EventGroup")


@connected_without_table
@only_calls
async def checkpoint(
    session: Session,
    group: GroupOption = "",
    tree: TreeOption = "",
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Size of the checkpoint (default: the last one).")
    ] = None,
    out: OutOption = None,
    lake: FromLakeOption = "",
) -> None:
    """Print a signed checkpoint of a tree.

    Keep it, or give it to another person: with it, `routerctl log consistency` shows later whether anything was
    changed.
    """
    if lake and size is not None:
        raise typer.BadParameter("--size chooses a checkpoint of a node: leave it out with --lake")
    if lake:
        answer = checkpoint_of_lake(lake, group, tree)
    else:
        answer = await session.call("history.checkpoint", group=await one_group(session, group), tree=tree, size=size)
    if out is not None:
        out.write_text(answer["note"], encoding="utf-8")
    if session.out.is_document:
        session.out.value(answer)
    elif out is None:
        session.out.document(answer["note"].removesuffix("\n"))
    else:
        note(f"{out}: checkpoint of size {answer['size']} of {answer['origin']}")


class _Held(NamedTuple):
    """The smaller tree of a comparison; `root`, `origin` and `note` are known if it was read from a checkpoint.

    `keys` are those that the caller trusts to have signed it; without any, it is the key that the node shows.
    """

    size: int
    root: bytes | None = None
    origin: str = ""
    group: str = ""
    note: SignedNote | None = None
    keys: tuple[NoteKey, ...] = ()


@connected_without_table
@only_calls
async def consistency(
    session: Session,
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="The smaller size, or a file with a checkpoint that was kept.")
    ],
    new: Annotated[
        int | None, typer.Argument(metavar="[NEW]", min=1, help="The larger size (default: the last checkpoint).")
    ] = None,
    group: GroupOption = "",
    tree: TreeOption = "",
    lake: FromLakeOption = "",
    tree_key: Annotated[
        str,
        typer.Option(
            "--tree-key",
            metavar="KEY",
            help="Public key of the tree that you trust, or a file with it (default: the key that the node shows).",
        ),
    ] = "",
) -> None:
    """Prove that a tree begins with all leaves of a smaller one; exits with status 4 if it does not.

    The proof is verified here. With a kept checkpoint, its root must be that of the smaller tree: then nothing that it
    covers was changed or removed.
    """
    held = _read_held(old)
    if tree_key:
        held = held._replace(keys=_read_keys(tree_key, held))
    if lake:
        answer = consistency_of_lake(lake, held.group or group, held.origin or tree, held.size, new)
    else:
        try:
            answer = await _call_of_held(session, "history.consistency", held, group, tree, old=held.size, new=new)
        except Invalid:
            if held.note is not None and (new is None or new >= held.size):
                last = await _call_of_held(session, "history.checkpoint", held, group, tree)
                _require_as_large(held, held.note, last, old)
            raise
    _verify(held, answer, old)
    if session.out.is_document:
        session.out.value(answer)
        return
    session.out.line(
        f"Consistent: {answer['origin']} of size {answer['new']} begins with all leaves of size {answer['old']}."
    )
    if held.root is None and session.out.is_table:
        who = "lake" if lake else "node"
        note(f"note: the {who} itself named the root of the smaller tree; give a checkpoint that you kept to compare")


async def _call_of_held(
    session: Session, operation: str, held: _Held, group: str, tree: str, **params: Any
) -> dict[str, Any]:
    """Call an operation on the tree of a kept checkpoint, or else on the one that the options name."""
    if held.origin:
        return await call_of_tree(session, operation, held.origin, group=held.group, **params)
    answer: dict[str, Any] = await session.call(operation, group=await one_group(session, group), tree=tree, **params)
    return answer


def _read_held(old: str) -> _Held:
    """Return the tree of a size or of a file with a checkpoint. Raises BadParameter and Invalid."""
    if old.isdecimal():
        if not 0 < int(old) < 1 << 48:
            raise typer.BadParameter(f"{old} is not the size of a tree")
        return _Held(int(old))
    signed, kept = read_kept(old)
    return _Held(kept.size, kept.root, str(kept.origin), kept.origin.group, signed)


def _require_as_large(held: _Held, signed: SignedNote, last: Mapping[str, Any], file: str) -> None:
    """Raise CheckFailed if a node has signed a kept checkpoint and has fewer leaves of that tree, which is its own.

    Raises Invalid at a relay: it pulls the leaves later than the tree's node signs them.
    """
    if held.size <= int(last["size"]) or held.origin != last["origin"]:
        return
    _require_signed(held, signed, str(last["key"]), file)
    if last.get("relayed", True):  # a node of an earlier release does not say whose tree it is
        raise Invalid(
            f"{file} has size {held.size}, and this relay has only {counted(last['size'], 'leaf', 'leaves')} of"
            f" {held.origin} so far",
            hint=f"repeat it later, or ask {held.origin.split('/')[2]} itself",
        )
    raise CheckFailed(
        f"the node has signed {counted(held.size, 'leaf', 'leaves')} of {held.origin},"
        f" as {file} shows, and its tree has {last['size']}:"
        " its history was rolled back, as with an older copy of the database, or forked",
        hint=f"keep {file}, it is the evidence; see `routerctl log findings` at the node and at its peers, and ask its"
        " operator: docs/how-to/pin-history-keys.md",
    )


def _read_keys(text: str, held: _Held) -> tuple[NoteKey, ...]:
    """Return the keys of the tree of a kept checkpoint in the value of --tree-key. Raises BadParameter and Invalid."""
    from eventd.cli.history.check import keys_of_trees

    if held.note is None:
        raise typer.BadParameter("--tree-key verifies a kept checkpoint: give the file of one, or leave it out")
    keys = tuple(key for key in keys_of_trees(text) if key.name == held.origin)
    if not keys:
        raise Invalid(f"{text[:80]} is not a key of the tree {held.origin}", hint="routerctl log keys prints its key")
    return keys


def _require_signed(held: _Held, signed: SignedNote, shown: str, file: str) -> None:
    """Raise Invalid unless a kept checkpoint was signed: a note that was changed accuses no node.

    Raises CheckFailed if the key that signed it is trusted, and is not the one that is shown now.
    """
    from federation.errors import HistoryError
    from federation.history.checkpoints import open_checkpoint
    from federation.history.notes import LOG_KEY, read_vkey

    key = read_vkey(shown, LOG_KEY)
    trusted = signed.choose(held.keys or (key,))
    another = f"the node shows another key for {held.origin} than the one that signed {file}"
    try:
        open_checkpoint(signed, trusted)
    except HistoryError as error:
        if not held.keys and not signed.of(key) and any(one.name == held.origin for one in signed.signatures):
            raise Invalid(
                f"{another}: it shows {shown}",
                hint="give the key that you know of the tree with --tree-key KEY: if that key signed the file, the node"
                " has replaced its tree, or is another one",
            ) from None
        raise Invalid(
            f"{file} is not a checkpoint of {held.origin} that the key {trusted.text()} signed: {error.message}",
            hint="the note was changed after it was signed, or another key signed it: it proves nothing about the node",
        ) from None
    if trusted != key:
        raise CheckFailed(
            f"{another}: {shown} instead of {trusted.text()}",
            hint=f"a tree has one key: keep {file}, it is the evidence that the tree was replaced, and ask the node's"
            " operator: docs/how-to/pin-history-keys.md",
        )


def _verify(held: _Held, answer: Mapping[str, Any], file: str) -> None:
    """Raise CheckFailed unless the proof connects the two trees, the smaller one as it was kept and signed."""
    from federation.errors import HistoryError
    from federation.history.forms import read_hash, write_base64
    from federation.history.proofs import verify_consistency

    if held.origin and held.origin != answer["origin"]:
        raise CheckFailed(f"the tree is {answer['origin']}, and the checkpoint is of {held.origin}")
    if held.note is not None:
        _require_signed(held, held.note, str(answer["key"]), file)
    try:
        old_root = held.root or read_hash(answer["oldRoot"], "the root of the smaller tree")
        new_root = read_hash(answer["newRoot"], "the root of the larger tree")
        hashes = [read_hash(one, "a hash of the proof") for one in answer["proof"]]
        if held.root and held.root != read_hash(answer["oldRoot"], "the root of the smaller tree"):
            raise CheckFailed(
                f"{answer['origin']} has another root at size {held.size} than the checkpoint that was kept:"
                f" {answer['oldRoot']} instead of {write_base64(held.root)}",
                hint="its leaves were changed: keep the checkpoint, it shows what the node signed",
            )
        verify_consistency(held.size, old_root, int(answer["new"]), new_root, hashes)
    except HistoryError as error:
        raise CheckFailed(
            f"{answer['origin']}: {error.message}", hint="keep both checkpoints: they show what the node signed"
        ) from None


@connected_without_table
@only_calls
async def keys(session: Session, group: GroupOption = "", lake: FromLakeOption = "") -> None:
    """Print the public keys of a group's trees as a policy file.

    `routerctl prove check --policy` reads it. A person who is to trust these keys must get them from you over a way
    that they trust.
    """
    if lake:
        answer = keys_of_lake(lake, group)
        note(
            "note: these are the keys that the lake names; any program that can write to it could have put others there"
        )
    else:
        answer = await session.call("history.keys", group=await one_group(session, group))
    if session.out.is_document:
        session.out.value(answer)
    elif session.out.format == "name":
        for tree in answer["trees"]:
            session.out.line(tree["key"])
    else:
        session.out.document(answer["policy"].removesuffix("\n"))
        if answer["witness"]:
            note(f"note: this node cosigns with {answer['witness']}")
