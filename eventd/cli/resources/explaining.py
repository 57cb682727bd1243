"""routerctl explain, api-resources: the kinds and their fields, without a node."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eventd.cli.gateway.completion import complete_field
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import GAP, Column, Output, joined, text
from eventd.errors import NotFound

if TYPE_CHECKING:
    from eventd.resources.kinds.explanation import Explained

_WIDTH: Final = 100
"""Maximum width of descriptions, in characters: longer lines are hard to read."""

_KINDS: Final = (
    Column("NAME", text("name")),
    Column("SHORTNAMES", joined("shortNames")),
    Column("APIVERSION", text("apiVersion")),
    Column("KIND", text("kind")),
    Column("DECLARES", text("declares"), wide=True),
)


@offline("output", "no_headers")
def api_resources(session: Session) -> None:
    """List the kinds of resources, with the names that commands accept for each."""
    from eventd.resources.kinds.registry import KINDS

    rows = [
        {
            "name": kind.plural,
            "shortNames": list(kind.short),
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "declares": kind.declares,
        }
        for kind in KINDS.values()
    ]
    session.out.rows(_KINDS, rows, name=lambda row: row["name"])


@offline("output")
def explain(
    session: Session,
    path: Annotated[
        str,
        typer.Argument(
            metavar="KIND[.FIELD]",
            autocompletion=complete_field,
            help="Kind, or a field of it: EventGroup, ep.retry, ep.spec.retry.maxBackoff.",
        ),
    ],
    recursive: Annotated[bool, typer.Option("--recursive", help="Show the fields at every depth.")] = False,
) -> None:
    """Show the fields of a kind: what each means, its type and its default.

    `routerctl api-resources` lists the kinds. Neither needs a node.
    """
    from eventd.resources.kinds.explanation import explain as explain_kind
    from eventd.resources.kinds.registry import find_kind

    word, _, field = path.partition(".")
    try:
        kind = find_kind(word)
    except NotFound as error:
        if "?" not in error.hint:
            error.hint += "; the fields of other programs' kinds, which `routerctl get all` shows, are not known"
        raise
    found = explain_kind(kind, field)
    if not session.out.is_table:
        session.out.rows((), [field._asdict() for field in found], name=lambda row: row["path"])
        return
    out, head = session.out, found.pop(0) if field else None
    out.line(f"KIND:       {kind.name}")
    out.line(f"APIVERSION: {kind.api_version}")
    if head:
        out.line(f"FIELD:      {_typed(head, head.path)}")
    out.line()
    _wrap(out, head.description if head else kind.declares, "")
    if found:
        out.line()
        out.line("FIELDS:")
        _show_fields(out, found, _depth(head), deepest=math.inf if recursive else 1 if head else 2)


def _depth(field: Explained | None) -> int:
    return field.path.count(".") + 1 if field else 0


def _show_fields(out: Output, found: Sequence[Explained], top: int, *, deepest: float) -> None:
    """Show fields that are at most `deepest` levels below level `top`, indented by their level."""
    for field in found:
        level = _depth(field) - top
        if level <= deepest:
            out.line(f"{GAP * level}{_typed(field, field.path.rpartition('.')[2])}")
            _wrap(out, field.description, GAP * (level + 2))


def _typed(field: Explained, name: str) -> str:
    """Return the name of a field, its type, and that it is required or which default it has."""
    marks = "; required" if field.required else f"; default: {field.default}" if field.default else ""
    return f"{name.removesuffix('[]')} <{field.type}{marks}>"


def _wrap(out: Output, words: str, indent: str) -> None:
    for line in textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent=indent):
        out.line(line)
