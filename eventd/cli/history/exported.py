"""routerctl log check: checks an exported tree offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventd.cli.gateway.session import Session, offline
from eventd.cli.history.check import KeysOption, PolicyOption, known_keys
from eventd.cli.history.export import count_missing, require_full_tiles, require_root, require_whole_tiles
from eventd.cli.history.kept_checkpoint import read_kept
from eventd.errors import CheckFailed, Invalid
from eventd.text.plural import counted


@offline("output")
def check(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `routerctl log export` wrote.")],
    keys: KeysOption = None,
    policy: PolicyOption = None,
) -> None:
    """Check an exported tree offline; exits with status 4 if its tiles, root and signature do not fit together.

    It needs no node, network or database. The key comes from you: the file `key` in the folder proves nothing.
    """
    from federation.errors import HistoryError
    from federation.history.checkpoints import open_checkpoint

    known = known_keys(keys or [], policy)
    file = folder / "checkpoint"
    try:
        signed, stated = read_kept(file)
    except FileNotFoundError:
        raise Invalid(f"{file} does not exist", hint="`routerctl log export DIR` writes such a folder") from None
    of_tree = [one for one in known.logs if one.name == str(stated.origin)]
    if not of_tree:
        raise CheckFailed(f"{folder} proves nothing: no known key is that of the tree {stated.origin}")
    key = signed.choose(of_tree)
    try:
        checkpoint = open_checkpoint(signed, key)
    except HistoryError as error:
        raise CheckFailed(f"{folder} proves nothing: {error.message}") from None
    require_whole_tiles(folder, checkpoint)
    require_root(folder, checkpoint)
    require_full_tiles(folder, checkpoint)
    missing = count_missing(folder, checkpoint)
    if session.out.is_document:
        origin, root = str(checkpoint.origin), checkpoint.root.hex()
        session.out.value({"origin": origin, "size": checkpoint.size, "root": root, "missing": missing})
        return
    session.out.line(
        f"Proven: the key {key.id.hex()} of the node {checkpoint.origin.node} signed the tree {checkpoint.origin} of"
        f" size {checkpoint.size}, and the tiles that are in {folder} give its root {checkpoint.root.hex()}."
    )
    if missing:
        session.out.line(f"Not proven: the leaves of {counted(missing, 'tile')} that the folder lacks.")
