"""Chooses the lake that a command works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventd.errors import Invalid

if TYPE_CHECKING:
    from eventd.lake.storage import Storage

LakeOption = Annotated[str, typer.Option("--lake", metavar="LAKE", help="Folder or address of the lake. [EVENTD_LAKE]")]


def lake_address(named: str) -> str:
    """Return the address `named`, or if it is empty that of the settings. Raises `Invalid` if both are empty."""
    from eventd.settings.loading import load

    address = load({"lake": named or None}).lake
    if not address:
        raise Invalid("no lake given", hint="add --lake FOLDER, or set EVENTD_LAKE")
    return address


def lake_storage(named: str) -> Storage:
    """Return the storage of the lake `named`, or if it is empty of the settings' lake.

    Raises `EventdError` if none is given, or if it is unusable.
    """
    from eventd.lake.storage import connect, open_lake

    storage = connect(lake_address(named))
    open_lake(storage)
    return storage
