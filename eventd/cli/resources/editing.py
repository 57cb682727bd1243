"""routerctl edit: change one resource in an editor."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from eventd.cli.gateway.completion import complete_kind, complete_name
from eventd.cli.gateway.session import Session, connected_without_table, may_ask, only_calls
from eventd.cli.resources.listing import full_name
from eventd.cli.resources.resources import parted, show_changes
from eventd.cli.terminal.editor import find_editor, run_editor
from eventd.cli.terminal.output import note
from eventd.errors import Conflict, EventdError, Invalid, NotFound

_SOURCE: Final = "edited.yaml"
_PLACE: Final = re.compile(rf"{re.escape(_SOURCE)}(?::(\d+))?(?::\d+)?:? ?")
_HEAD: Final = (
    "# Edit this resource, save it and leave the editor: it is then applied. If it is left unchanged or empty,",
    "# nothing is. If it has a problem, the editor opens again. The lines at the top that begin with # are ignored.",
)


@connected_without_table
@only_calls
@may_ask
async def edit(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND/NAME", autocompletion=complete_kind, help="The resource, such as ep/to-cloud."),
    ],
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", autocompletion=complete_name, help="Name, if not written as KIND/NAME."),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Apply it even if the resource has changed meanwhile.")
    ] = False,
) -> None:
    """Change a resource in an editor, and apply it. Refused if the resource has changed meanwhile.

    The editor is the command in VISUAL, or else in EDITOR. Leave it without a change to cancel. If the resource has a
    problem, the editor opens again and shows it.
    """
    kind, name = parted(kind, name)
    if not name:
        raise typer.BadParameter(f"name the resource: {kind}/NAME")
    editor = find_editor()
    row = await session.call("resources.get", kind=kind, name=name)
    edited = EditedFile(row)
    try:
        while edited.open(editor):
            try:
                edited.require_identity()
                session.confirm_ending(f"apply the edited {full_name(row)}")
                answer = await session.call("resources.apply", **_request(edited, force=force))
            except (Conflict, NotFound):
                raise
            except Invalid as problem:
                edited.head = _comments(problem, len(_HEAD))
            else:
                edited.remove()
                show_changes(session, answer)
                return
    except EventdError as error:
        if edited.keep():
            error.hint = f"{f'{error.hint}; ' if error.hint else ''}your version is in {edited.file}"
        raise
    except BaseException:
        edited.keep()
        raise
    edited.remove()
    note("cancelled: nothing was changed")


def _request(edited: EditedFile, *, force: bool) -> dict[str, Any]:
    row = edited.row
    one = {
        "apiVersion": row["apiVersion"],
        "kind": row["kind"],
        "name": row["metadata"]["name"],
        "generation": row["metadata"]["generation"],
    }
    return {"sources": [{"name": _SOURCE, "text": edited.body}], "expected": [] if force else [one]}


def _comments(problem: EventdError, above: int) -> tuple[str, ...]:
    """Return a problem as lines of comments at the top of the file, below `above` others.

    Line numbers in the problem are converted to those of the file as it opens.
    """
    lines = [problem.message, *([f"hint: {problem.hint}"] if problem.hint else [])]
    texts = [text for line in lines for text in line.splitlines()]
    down = above + len(texts) + 1
    shown = [_PLACE.sub(lambda at: f"line {int(at[1]) + down}: " if at[1] else "", text) for text in texts]
    return tuple(f"# {text}".rstrip() for text in ("", *shown))


class EditedFile:
    """A resource in a file of its own, in a folder that only its user may enter; `body` is what was saved last."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        from eventd.resources.reading.yaml_text import write_yaml

        self.row = row
        self.body = write_yaml(dict(row))
        self.head: tuple[str, ...] = ()
        self._first = self.body
        self._folder = Path(tempfile.mkdtemp(prefix="routerctl-edit-"))
        self.file = self._folder / _SOURCE
        self.file.touch(0o600)

    def open(self, editor: list[str]) -> bool:
        """Open the file in the editor. Returns False if it is left unchanged or empty.

        Raises EventdError if the editor fails, or if a version with a problem is left unchanged.
        """
        self.file.write_text("".join(f"{line}\n" for line in (*_HEAD, *self.head)) + self.body, encoding="utf-8")
        run_editor(editor, self.file)
        before, self.body = self.body, _without_head(self._read())
        if not self.body.strip() or self.body == self._first:
            self.body = self._first
            return False
        if self.head and self.body == before:
            raise Invalid("the problem is still there, nothing was changed")
        return True

    def _read(self) -> str:
        from eventd.resources.reading.documents import MAX_BYTES

        try:
            with self.file.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise Invalid(f"the file is larger than {MAX_BYTES >> 20} MiB; nothing was changed")
            return raw.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise Invalid(f"the file cannot be read: {why}; nothing was changed") from None

    def require_identity(self) -> None:
        """Raise `Invalid` unless the file holds the same resource, and no other."""
        from eventd.resources.reading.documents import Identity, load_text

        loaded = load_text(_SOURCE, self.body)
        if loaded.problems:
            return  # the node reports these, with others
        metadata = self.row["metadata"]
        same = Identity(self.row["apiVersion"], self.row["kind"], metadata["name"])
        if [draft.identity for draft in loaded.drafts] != [same]:
            raise Invalid(f"the file must hold {same} of {same.api_version} and nothing else")

    def keep(self) -> bool:
        """Return whether a changed version is kept; otherwise the file is removed."""
        if self.body != self._first:
            return True
        self.remove()
        return False

    def remove(self) -> None:
        """Remove the file, and all files that the editor wrote beside it."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _without_head(text: str) -> str:
    """Return a text without the comments at its top."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        del lines[0]
    return "".join(lines)
