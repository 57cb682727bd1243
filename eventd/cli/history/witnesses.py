"""routerctl log witnesses, findings and keys rotate: who cosigns, what was found, and the rotation of the key."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.history.lake_trees import WITNESSES_OF_LAKE, FromLakeOption, witnesses_of_lake
from eventd.cli.history.prove import OutOption
from eventd.cli.terminal.output import Column, moment, note, span, text
from eventd.errors import Invalid
from eventd.text.plural import counted

WITNESSES = (
    Column("PEER", text("peer")),
    Column("STATE", text("state")),
    Column("SIZE", text("size")),
    Column("COSIGNED", moment("cosignedAt")),
    Column("BEHIND", span("ageSeconds")),
    Column("HELD", text("held")),
    Column("WITNESSED", moment("witnessedAt")),
    Column("FILES", text("files")),
    Column("KEY", text("source")),
    Column("DETAIL", text("detail")),
)
FINDINGS = (
    Column("ID", text("id")),
    Column("KIND", text("kind")),
    Column("NODE", text("node")),
    Column("SIZE", text("size")),
    Column("OTHER", text("otherSize")),
    Column("FOUND", moment("foundAt")),
    Column("CONFIRMED", moment("confirmedAt")),
    Column("DETAIL", text("detail")),
    Column("ORIGIN", text("origin"), wide=True),
)


@connected
@only_calls
async def witnesses(session: Session, group: GroupOption = "", lake: FromLakeOption = "") -> None:
    """List the peers as witnesses of this node's tree, and what this node holds of theirs."""
    if lake:
        session.out.rows(WITNESSES_OF_LAKE, witnesses_of_lake(lake, group), name=lambda row: str(row["witness"]))
        return
    answer = await session.call("history.witnesses", group=await one_group(session, group))
    if session.out.is_document:
        session.out.value(answer)
        return
    rows = _rows(answer)
    session.out.rows(WITNESSES, rows, name=lambda row: str(row["peer"]))
    open_ones = _count_open(answer)
    if session.out.is_table and open_ones:
        note(f"note: {counted(open_ones, 'finding')} not confirmed; see routerctl log findings")


def _count_open(answer: dict[str, Any]) -> int:
    """Return how many findings no operator has confirmed. An older node does not count them, and shows them all."""
    if "open" in answer:
        return sum(answer["open"].values())
    return sum(one["confirmedAt"] is None and one["kind"] != "reset" for one in answer["findings"])


def _rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each node that is a witness here, whose tree is held, or of which a key is refused."""
    nothing: dict[str, Any] = {"state": "", "size": "", "cosignedAt": None, "ageSeconds": 0, "detail": ""}
    nothing |= {"held": "", "witnessedAt": None, "files": "", "source": ""}
    rows = {one["peer"]: {**nothing, **one} for one in answer["witnesses"]}
    for held in sorted(answer["held"], key=lambda one: str(one["openedAt"])):  # the tree opened last counts
        row = rows.setdefault(held["node"], {**nothing, "peer": held["node"]})
        row |= {"held": held["size"], "witnessedAt": held["witnessedAt"]}
    for files in sorted(answer.get("files", ()), key=lambda one: str(one["witnessedAt"])):  # an older node shows none
        rows.setdefault(files["node"], {**nothing, "peer": files["node"]})["files"] = files["size"]
    for key in answer["keys"]:
        if key["refused"] is not None:
            row = rows.setdefault(key["node"], {**nothing, "peer": key["node"]})
            refused = f"the {key['kind']} key {key['refused']} is refused: {key['key']} is known ({key['source']})"
            row["detail"] = "; ".join(filter(None, (row["detail"], refused)))
        if key["node"] in rows and (key["kind"] == "log" or not rows[key["node"]]["source"]):
            rows[key["node"]]["source"] = key["source"]
    return [rows[name] for name in sorted(rows)]


@connected_without_table
@only_calls
@may_ask
async def reset(
    session: Session,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node name of the peer.")],
    group: GroupOption = "",
) -> None:
    """Confirm the findings about a node, and forget its keys and trees: what it shows next is taken over.

    Ask the operator of the node first. What was held is recorded.
    """
    answer = await session.call("history.reset", group=await one_group(session, group), node=node)
    if session.out.is_document:
        session.out.value(answer)
        return
    parts = [counted(answer[name], one) for name, one in (("findings", "finding"), ("trees", "tree"), ("keys", "key"))]
    pinned = "; its pinned key stays in effect" if answer.get("pinned") else ""
    note(f"{node}: confirmed {parts[0]}; forgot {parts[1]} and {parts[2]}{pinned}")


@connected
@only_calls
async def findings(
    session: Session,
    group: GroupOption = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="Maximum number of rows.")] = 50,
    after: Annotated[int, typer.Option("--after", metavar="ID", min=0, help="Show findings older than ID.")] = 0,
) -> None:
    """List findings about trees, newest first: forks, rollbacks, and what could not be proven."""
    answer = await session.call("history.findings", group=await one_group(session, group), limit=limit, after=after)
    session.out.rows(FINDINGS, answer["findings"], name=lambda row: str(row["id"]))
    if answer["next"] is not None:
        note(f"note: there are more: continue with --after {answer['next']}")


@connected_without_table
@only_calls
async def finding(
    session: Session,
    id: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="Id of the finding.")],
    group: GroupOption = "",
    out: OutOption = None,
) -> None:
    """Show a finding with the notes it rests on; with --out, write a fork as a file for `routerctl prove check`."""
    answer = await session.call("history.finding", group=await one_group(session, group), id=id)
    if out is not None:
        if answer["file"] is None:
            raise Invalid(f"finding {id} has no file: only two signed checkpoints of one size show a fork to others")
        content = json.dumps(answer["file"], ensure_ascii=False, indent=2)
        out.write_text(f"{content}\n", encoding="utf-8")
    if session.out.is_document:
        session.out.value(answer)
    elif out is None:
        session.out.document(f"{answer['detail']}\n\n{answer['note']}\n{answer['otherNote']}".rstrip("\n"))
    else:
        note(f"{out}: {answer['detail']}")


@connected_without_table
@only_calls
@may_ask
async def rotate(
    session: Session,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="The old key is lost, or others have it: each peer must confirm the new one."),
    ] = False,
) -> None:
    """Replace the key that signs the trees of this node; each group with a history opens a tree."""
    answer = await session.call("history.rotate", lost=lost)
    if session.out.is_document:
        session.out.value(answer)
        return
    note(f"new key {answer['key']}: {counted(len(answer['groups']), 'group')} with a history opens a tree")
    if lost:
        note("note: each peer refuses it until it is pinned there, or after `routerctl log witnesses reset` there")
