"""routerctl prove check: checks a proof file offline, and says in sentences what it proves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eventd.cli.gateway.session import Session, offline
from eventd.errors import CheckFailed, Invalid
from eventd.runtime.regular_files import NotRegular, read_regular

if TYPE_CHECKING:
    from federation.history.fork_file import ProvenFork
    from federation.history.notes import NoteKey
    from federation.history.policy import Policy
    from federation.history.proof_file import ProvenEvent

NOT_PROVEN = (
    "that what the event states is true, or its times: they are the publisher's words",
    "who called the node to emit it",
    "that nothing else was removed from the history: compare checkpoints with `routerctl log consistency`",
)
_FORMAT_BYTES: Final = 100
"""The file of a fork names its format within so many bytes; what a proof file has there is its own format."""
_KEYS_HINT: Final = "`routerctl log keys` prints the keys of a node"
_FILE_HINT: Final = "`routerctl prove EVENT_ID --out FILE` writes one"
ALONE = "that others were shown the same history: no witness that you know has cosigned the checkpoint"


KeysOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="VKEY", help="Public key of a tree or a witness that you trust; repeatable."),
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="File with the keys that you trust.")
]


@offline("output")
def check(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The proof file.")],
    keys: KeysOption = None,
    policy: PolicyOption = None,
    witnesses: Annotated[
        int, typer.Option("--witnesses", metavar="N", min=0, help="Require cosignatures of N witnesses that you know.")
    ] = 0,
) -> None:
    """Check a proof file offline and say what it proves; exits with status 4 if it proves nothing.

    The file of a fork, two signed states of a tree that contradict each other, is checked as well. It needs no node,
    network or database. The keys come from you, never from the file: get them from the operator of the node, who
    prints them with `routerctl log keys`.
    """
    from federation.errors import MalformedHistory, MessageError
    from federation.history.fork_file import FORK_FORMAT, check_fork, read_fork_file
    from federation.history.proof_file import MAX_PROOF_FILE, check_proof, read_proof_file

    known = known_keys(keys or [], policy)
    data = _read(file, MAX_PROOF_FILE)
    is_fork = f'"{FORK_FORMAT}"'.encode() in data[:_FORMAT_BYTES]
    try:
        _ = read_fork_file(data) if is_fork else read_proof_file(data)
    except MalformedHistory as error:
        raise Invalid(f"{file} is not a proof: {error.message}", hint=_FILE_HINT) from None
    try:
        if is_fork:
            _show_fork(session, check_fork(data, known.logs))
            return
        proven = check_proof(data, known.logs, known.witnesses.values())
    except MessageError as error:
        raise CheckFailed(f"{file} proves nothing: {error.message}") from None
    _require_witnesses(file, proven, known, witnesses)
    if session.out.is_table or session.out.format == "name":
        for line in _sentences(proven):
            session.out.line(line)
    else:
        session.out.value(_show(proven))


def _show_fork(session: Session, fork: ProvenFork) -> None:
    """Print what the file of a fork proves."""
    origin, sizes = fork.first.origin, (fork.first.size, fork.second.size)
    if session.out.is_document:
        session.out.value({"proven": True, "fork": True, "origin": str(origin), "sizes": sizes, "leaf": fork.index})
        return
    where = (
        f"two roots at size {sizes[0]}"
        if fork.index is None
        else f"another leaf {fork.index} at {sizes[0]} and {sizes[1]}"
    )
    session.out.line(f"Proven: the key of the node {origin.node} signed two histories of the tree {origin}: {where}.")
    session.out.line("Not proven: which of the two is the true one, and who used the key.")


def known_keys(texts: list[str], file: Path | None) -> Policy:
    """Return the keys of the command line and of the policy. Raises BadParameter without any, and Invalid."""
    from federation.errors import MalformedHistory
    from federation.history.notes import LOG_KEY, WITNESS_KEY, read_vkey
    from federation.history.policy import Policy

    if not texts and file is None:
        raise typer.BadParameter("add the key that you trust: --key VKEY or --policy FILE")
    known = Policy() if file is None else policy_of(file)
    try:
        logs, witnesses = [*known.logs], dict(known.witnesses)
        for text in texts:
            if _is_witness(text):
                key = read_vkey(text, WITNESS_KEY)
                witnesses[key.text()] = key
            else:
                logs.append(read_vkey(text, LOG_KEY))
    except MalformedHistory as error:
        file_given = next((text for text in texts if os.path.isfile(text)), None)  # pathlib raises for a long text
        hint = _KEYS_HINT if file_given is None else f"{file_given} is a file: give it with --policy"
        raise Invalid(error.message, hint=hint) from None
    return replace(known, logs=tuple(logs), witnesses=witnesses)


def policy_of(file: Path) -> Policy:
    """Return the policy in a file. Raises Invalid."""
    from federation.errors import MalformedHistory
    from federation.history.policy import MAX_POLICY, read_policy

    try:
        return read_policy(_read(file, MAX_POLICY).decode(errors="replace"))
    except MalformedHistory as error:
        raise Invalid(error.message, hint=_KEYS_HINT) from None


def keys_of_trees(text: str) -> tuple[NoteKey, ...]:
    """Return the keys of trees in a verifier key, or in a file with one or with a policy. Raises Invalid."""
    from federation.errors import MalformedHistory
    from federation.history.notes import LOG_KEY, read_vkey
    from federation.history.policy import MAX_POLICY

    try:
        if not os.path.exists(text):  # pathlib raises for a long text
            return (read_vkey(text, LOG_KEY),)
        content = _read(Path(text), MAX_POLICY).decode(errors="replace").strip()
        return policy_of(Path(text)).logs if " " in content else (read_vkey(content, LOG_KEY),)
    except MalformedHistory as error:
        raise Invalid(error.message, hint=_KEYS_HINT) from None


def _is_witness(text: str) -> bool:
    """Return whether a verifier key names the type of a witness; another text is read as the key of a tree."""
    from base64 import b64decode

    from federation.history.notes import WITNESS_KEY

    try:
        return b64decode(text.split("+", 2)[-1], validate=True)[:1] == bytes([WITNESS_KEY])
    except ValueError:
        return False


def _read(file: Path, most: int) -> bytes:
    """Return the content of a file, up to one byte more than `most`. Raises Invalid."""
    try:
        return read_regular(file, most + 1).content
    except NotRegular:
        raise Invalid(f"{file} is not a regular file") from None


def _require_witnesses(file: Path, proven: ProvenEvent, known: Policy, least: int) -> None:
    """Raise CheckFailed unless enough known witnesses cosigned the checkpoint, and those that the policy demands."""
    count = len(proven.cosigned)
    if count < least:
        raise CheckFailed(
            f"{file}: {count} of the witnesses that you know cosigned the checkpoint of size {proven.checkpoint.size}"
            f" of {proven.checkpoint.origin}, and --witnesses requires {least}",
            hint="ask for a proof from a later checkpoint, or add the keys of its witnesses",
        )
    if not known.holds(proven.cosigned):
        raise CheckFailed(
            f"{file}: the cosignatures of the checkpoint of size {proven.checkpoint.size} of"
            f" {proven.checkpoint.origin} do not fulfil the quorum {known.quorum} of the policy",
            hint="ask for a proof from a later checkpoint",
        )


def _sentences(proven: ProvenEvent) -> Iterator[str]:
    """Yield what is proven and what is not."""
    origin, event = proven.checkpoint.origin, proven.event
    if event is None:
        what = f"an event with the digest {proven.digest.hex()}"
    else:
        what = f"event {event.id} of type {event.type}"
    yield f"Proven: the node {origin.node} admitted {what} to the group {origin.group}."
    yield (
        f"It is leaf {proven.index} of the tree {origin.tree}, in the checkpoint of size {proven.checkpoint.size},"
        f" which the key {proven.opening.opening.key.id.hex()} of the node signed."
    )
    if event is not None and event.source_node and event.source_node != origin.node:
        yield f"The event names another node, {event.source_node}, as its source: this proves only who admitted it."
    for key, time in sorted(proven.cosigned.items(), key=lambda pair: pair[1]):
        yield f"It was there by {_moment(time)}: the witness {key.name} cosigned the checkpoint then."
    for words in [*NOT_PROVEN, *([] if proven.cosigned else [ALONE])]:
        yield f"Not proven: {words}."


def _moment(seconds: int) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a time of the witness, which may lie after the year 9999
        return f"second {seconds} of the Unix time"


def _show(proven: ProvenEvent) -> dict[str, Any]:
    from federation.event import encode

    origin, event = proven.checkpoint.origin, proven.event
    return {
        "proven": True,
        "node": origin.node,
        "group": origin.group,
        "origin": str(origin),
        "tree": origin.tree,
        "leaf": proven.index,
        "size": proven.checkpoint.size,
        "root": proven.checkpoint.root.hex(),
        "digest": proven.digest.hex(),
        "event": None if event is None else encode(event).decode(),
        "key": proven.opening.opening.key.text(),
        "reason": proven.opening.opening.reason.value,
        "cosigned": [{"witness": key.text(), "at": _moment(time)} for key, time in proven.cosigned.items()],
    }
