"""routerctl federation event release: frees an id that another source has taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from eventd.cli.gateway.completion import complete_event
from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import note
from eventd.errors import Invalid
from eventd.runtime.regular_files import NotRegular, read_regular
from eventd.text.arguments import as_argument

MOST_BYTES: Final = 4 * 1024 * 1024
"""The limit of a proof file; declared here so that help does not load the formats."""


@connected_without_table
@only_calls
@may_ask
async def release(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_event, help="Id of the event.")],
    proof: Annotated[Path, typer.Option("--proof", metavar="FILE", help="Proof file of the true event.")],
    group: GroupOption = "",
) -> None:
    """Free an id that another source has taken, for the event that FILE proves.

    FILE is checked with a key of its node that is pinned, or that no other node can have shown: see `routerctl log
    witnesses`.
    The record that has the id stays. The true event is stored when its sender sends it again.
    """
    name = await one_group(session, group)
    answer = await session.call("events.release", group=name, id=id, proof=_read(proof))
    if session.out.is_document:
        session.out.value(answer)
        return
    holder, proven = answer["holder"], answer["proven"]
    held = "an event that is not stored any more"
    if holder["stored"]:
        held = f"an event of {holder['sourceNode'] or 'no source'}, with the digest {holder['digest']}"
    note(f"{id} is free in group {name}: {held} had it")
    if holder["stored"]:
        shown = f"routerctl prove {as_argument(id, 'EVENT_ID')} --group {name} --position {holder['position']}"
        note(f"note: for evidence: {shown}")
    source = proven["sourceNode"] or "no source"
    note(f"proven: {proven['node']} admitted the event of {source} as leaf {proven['leaf']} of {proven['origin']}")
    note("note: it is stored when its sender sends it again. There, `routerctl federation dead-letters list` shows its")
    note(f"number: routerctl federation dead-letters retry --group {name} NUMBER")


def _read(path: Path) -> object:
    try:
        content = read_regular(path, MOST_BYTES + 1).content
        if len(content) > MOST_BYTES:
            raise Invalid(f"{path} is larger than a proof file, which has at most {MOST_BYTES} bytes")
        found = json.loads(content)
    except NotRegular:
        raise Invalid(f"{path} is not a regular file") from None
    except (ValueError, RecursionError):
        raise Invalid(f"{path} is not a proof file", hint="routerctl prove EVENT_ID --out FILE writes one") from None
    if not isinstance(found, dict):
        raise Invalid(f"{path} is not a proof file", hint="routerctl prove EVENT_ID --out FILE writes one")
    return found
