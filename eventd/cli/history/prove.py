"""routerctl prove: writes the file that proves one event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from eventd.cli.gateway.completion import complete_event, complete_peer
from eventd.cli.gateway.lake_choice import lake_storage
from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected_without_table, only_calls
from eventd.cli.terminal.output import note

OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="File to write (default: to stdout).")]

PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="With --lake: file with the keys that you trust. The checkpoint is the one with the most cosignatures"
        " of its witnesses (default: the newest).",
    ),
]

SizeOption = Annotated[
    int | None,
    typer.Option(
        "--size",
        min=1,
        help="Size of the checkpoint that proves the event (default: of those that cover it, the one with the most"
        " signatures).",
    ),
]
PositionOption = Annotated[
    int | None,
    typer.Option(
        "--position",
        min=1,
        help="Prove the record at this position of the log, for example one whose id was released; `routerctl"
        " federation event describe` names them.",
    ),
]
AskedOption = Annotated[
    str,
    typer.Option(
        "--peer",
        metavar="NODE",
        autocompletion=complete_peer,
        help="Ask this peer, by its node name, to prove an event that came from it or through it.",
    ),
]


@connected_without_table
@only_calls
async def prove(
    session: Session,
    event_id: Annotated[
        str, typer.Argument(metavar="EVENT_ID", autocompletion=complete_event, help="Id of the event.")
    ],
    group: GroupOption = "",
    out: OutOption = None,
    size: SizeOption = None,
    first: Annotated[
        bool, typer.Option("--first", help="Prove the first record of an event that was refreshed, not the latest.")
    ] = False,
    no_event: Annotated[
        bool, typer.Option("--no-event", help="Leave the event out; the file names its digest.")
    ] = False,
    lake: Annotated[
        str,
        typer.Option("--lake", metavar="LAKE", help="Prove it from this lake, a folder or address, without a node."),
    ] = "",
    policy: PolicyOption = None,
    peer: AskedOption = "",
    position: PositionOption = None,
) -> None:
    """Write a file that proves to a third party that this node admitted an event; exits with status 4 if it cannot.

    The file can be checked offline with `routerctl prove check` and the public key of the node.
    """
    if lake and peer:
        raise typer.BadParameter("--peer asks a node, and --lake none: leave one of them out")
    if size is not None and (lake or peer):
        raise typer.BadParameter("--size chooses a checkpoint of this node: leave it out with --lake and --peer")
    if position is not None and (lake or first):
        raise typer.BadParameter("--position chooses a record of this node: leave it out with --lake and --first")
    if lake:
        answer = _prove_from_lake(lake, event_id, group, policy, first=first, with_event=not no_event)
    elif policy is not None:
        raise typer.BadParameter("--policy chooses a checkpoint of a lake: add --lake, or leave it out")
    else:
        asked: dict[str, Any] = {"peer": peer} if peer else {"size": size}
        answer = await session.call(
            "history.prove_at_peer" if peer else "history.prove",
            group=await one_group(session, group),
            id=event_id,
            record="first" if first else "latest",
            position=position,
            digest_only=no_event,
            **asked,
        )
    text = json.dumps(answer["file"], ensure_ascii=False, indent=2)
    if out is not None:
        out.write_text(f"{text}\n", encoding="utf-8")
    if session.out.is_document:
        session.out.value(answer)
    elif out is None:
        session.out.document(text)
    else:
        note(f"{out}: event {event_id} is leaf {answer['leaf']} of {answer['origin']}")
    for other in answer.get("others", ()):
        which = f"the record at position {answer['position']} was proven"
        note(f"note: {which}; position {other} has another one with this id: --position {other}")


def _prove_from_lake(
    lake: str, event_id: str, group: str, policy: Path | None, *, first: bool, with_event: bool
) -> dict[str, Any]:
    """Return the answer that a node would give, without its database. Raises EventdError."""
    from eventd.cli.history.check import policy_of
    from eventd.lake.tree_proofs import prove_from_lake
    from federation.history.checkpoints import read_checkpoint

    known = None if policy is None else policy_of(policy)
    file = prove_from_lake(lake_storage(lake), event_id, group=group, first=first, with_event=with_event, policy=known)
    origin = read_checkpoint(file.leaf.note.text).origin
    place = {"origin": str(origin), "node": origin.node, "tree": origin.tree, "leaf": file.leaf.index}
    answer = {"group": origin.group, "id": event_id, **place, "digest": file.digest.hex()}
    return {**answer, "file": json.loads(file.encode())}
