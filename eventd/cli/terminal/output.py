"""Prints results as aligned columns, JSON, YAML, names, or by a template. Colours only on a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from eventd.text.invisible import printable, spelled_out

if TYPE_CHECKING:
    from eventd.cli.terminal.jsonpath import Template

Format = Literal["table", "wide", "json", "yaml", "name", "jsonpath=TEMPLATE"]
DocumentFormat = Literal["table", "json", "yaml", "jsonpath=TEMPLATE"]
"""The forms of a result that is not a list, and has no name."""
RecordsFormat = Literal["table", "csv", "json", "yaml"]
"""The forms of a result whose columns the command does not know in advance."""

GAP = "  "
_TEMPLATE = "jsonpath="
ZERO_TIME = "0001-01-01T00:00:00Z"

_GOOD, _BAD, _MIDDLING = "\x1b[32m", "\x1b[31m", "\x1b[33m"
_STYLES = {
    **dict.fromkeys(("delivered", "running", "new", "created"), _GOOD),
    **dict.fromkeys(("failed", "refused", "expired", "blocked", "conflict", "deleted"), _BAD),
    **dict.fromkeys(("pending", "unknown", "backing-off", "paused", "configured"), _MIDDLING),
}


_WITHIN_LINES = re.compile(r"[^\n\t]+")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, how a cell is made from a row, and whether only `wide` shows it.

    `uncut` makes the cell for `wide` if the normal one is shortened. `wraps`: on a terminal, long cells are wrapped,
    except for `wide`.
    """

    header: str
    cell: Callable[[Mapping[str, Any]], str]
    wide: bool = False
    uncut: Callable[[Mapping[str, Any]], str] | None = None
    wraps: bool = False


def text(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a cell function for a member, as text; `-` if it is empty."""
    return lambda row: str(row[name]) if row[name] not in ("", None, [], {}) else "-"


def joined(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a cell function for a list, joined by commas; `-` if it is empty."""
    return lambda row: ",".join(map(str, row[name])) or "-"


def moment(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a cell function for a time, to the second; `-` if it is not set."""
    return lambda row: show_moment(row[name])


def show_moment(time: str | None) -> str:
    """Return an RFC 3339 time in UTC, truncated to the second; `-` if it is not set."""
    return "-" if time in (None, "", ZERO_TIME) else f"{str(time)[:19]}Z"


def span(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a cell function for a duration in seconds, such as `29m0s`; `-` for 0."""
    return lambda row: show_span(row[name])


def show_span(seconds: float) -> str:
    """Return a duration in seconds as text, truncated to seconds, below one second in milliseconds; `-` for 0."""
    from eventd.text.duration import format_duration

    if not seconds:
        return "-"
    whole = int(seconds) if abs(seconds) >= 1 else round(seconds, 3)
    return format_duration(round(whole * 1_000_000))


def printable_lines(words: str) -> str:
    """Return a text of several lines with unprintable characters escaped, except its newlines."""
    return "\n".join(map(printable, words.split("\n")))


def write_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON with invisible characters escaped."""
    return spelled_out(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


class Output:
    """The output of a command and its form. `colour` allows styles; they still need a terminal.

    Raises Invalid for a template that cannot be parsed.
    """

    def __init__(
        self,
        format: Format | DocumentFormat | RecordsFormat,
        *,
        headers: bool,
        colour: bool,
        stream: TextIO | None = None,
    ) -> None:
        self.format: str = format
        self._template: Template | None = None
        if format.startswith(_TEMPLATE):
            from eventd.cli.terminal.jsonpath import Template

            self._template = Template(format.removeprefix(_TEMPLATE))
        self._headers = headers
        self._noted = False
        self.has_wrapped = False  # whether any cell was wrapped
        self._stream = stream or sys.stdout
        self._styled = colour and self._stream.isatty()

    @property
    def is_table(self) -> bool:
        return self.format in ("table", "wide")

    @property
    def is_document(self) -> bool:
        """Return whether all members are shown: as JSON, as YAML, or for a template to choose from."""
        return self.format in ("json", "yaml") or self._template is not None

    def rows(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, name: Callable[..., str]) -> None:
        """Print a list: as a table, or as JSON, YAML or one name per line."""
        if self.is_table:
            self.table(columns, rows)
        elif self.format == "name":
            for row in rows:
                self.line(printable(name(row)))
        else:
            self.value(list(rows))

    def one(self, columns: Sequence[Column], row: Mapping[str, Any], *, name: Callable[..., str]) -> None:
        """Print a single object: a table of one row, its name, or the object as JSON or YAML."""
        if self.is_table or self.format == "name":
            self.rows(columns, [row], name=name)
        else:
            self.value(dict(row))

    def outcome(
        self,
        answer: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *lines: str,
        name: Callable[..., str] = str,
        notes: Iterable[str] = (),
    ) -> None:
        """Print the changes that a command has made: in the table form, `lines`, with `notes` on stderr.

        In other forms, `answer`.
        """
        if self.is_table:
            for line in lines:
                self.line(line)
            for words in notes:
                note(words)
        elif isinstance(answer, Mapping):
            self.one((), answer, name=name)
        else:
            self.rows((), answer, name=name)

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print aligned columns, two blanks apart."""
        shown = self._shown(columns)
        cells = [[printable(self._cell(column, row)) for column in shown] for row in rows]
        widths = [
            max([len(line[at]) for line in cells] + ([len(column.header)] if self._headers else [0]))
            for at, column in enumerate(shown)
        ]
        wraps = [column.wraps and self.format != "wide" and self._stream.isatty() for column in shown]
        if any(wraps):
            from eventd.cli.terminal.wrapping import fit, wrap

            whole = widths
            widths = fit(whole, wraps, shutil.get_terminal_size().columns - len(GAP) * (len(shown) - 1))
            self.has_wrapped |= widths != whole
            cells = [part for line in cells for part in wrap(line, widths)]
        if self._headers:
            self._print([column.header for column in shown], widths, header=True)
        for line in cells:
            self._print(line, widths)

    def records(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print rows of plain values under these column names: as a table, CSV, or a list of objects.

        In CSV an absent value is an empty cell, in a table `-`. JSON and YAML show only the last of columns that share
        a name. Without columns, nothing is printed, or an empty list of objects.
        """
        if not names:
            if self.format in ("json", "yaml"):
                self.value([])
        elif self.is_table:
            columns = [Column(name, _shown_at(at)) for at, name in enumerate(names)]
            self.table(columns, [{str(at): value for at, value in enumerate(row)} for row in rows])
        elif self.format == "csv":
            if self._headers:
                self._write(_csv_line(names))
            for row in rows:
                self._write(_csv_line([_shown(value, "") for value in row]))
        else:
            self.value([dict(zip(names, row, strict=True)) for row in rows])

    def _shown(self, columns: Sequence[Column]) -> list[Column]:
        return [column for column in columns if self.format == "wide" or not column.wide]

    def _cell(self, column: Column, row: Mapping[str, Any]) -> str:
        whole = column.uncut if self.format == "wide" else None
        return (whole or column.cell)(row)

    def _print(self, cells: Sequence[str], widths: Sequence[int], *, header: bool = False) -> None:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        padded[-1] = cells[-1]
        if self._styled:
            padded = [_style(cell, header=header) for cell in padded]
        self._write(f"{GAP.join(padded).rstrip()}\n")

    def stream_rows(
        self, columns: Sequence[Column], *, name: Callable[..., str]
    ) -> Callable[[Sequence[Mapping[str, Any]]], None]:
        """Return a function that prints further rows, in JSON as one line each, in YAML as one document each.

        A table has one header, before its first row.
        """
        widths: list[int] = []

        def show(rows: Sequence[Mapping[str, Any]]) -> None:
            if self.is_table:
                self._more(columns, rows, widths)
            else:
                for row in rows:
                    self._stream_one(row, name)
            self._stream.flush()

        return show

    def _stream_one(self, row: Mapping[str, Any], name: Callable[..., str]) -> None:
        if self.format == "name":
            self.line(printable(name(row)))
        elif self._template is not None:
            self.value(row)
        elif self.format == "yaml":
            self._write("---\n")
            self.value(json.loads(write_json(row)))  # which leaves nothing that YAML cannot contain
        else:
            self.document(write_json(row))

    def _more(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], widths: list[int]) -> None:
        shown = self._shown(columns)
        cells = [[printable(self._cell(column, row)) for column in shown] for row in rows]
        fresh = not widths
        widths[:] = [
            max([len(line[at]) for line in cells] + [widths[at] if widths else len(column.header)])
            for at, column in enumerate(shown)
        ]
        if fresh and self._headers:
            self._print([column.header for column in shown], widths, header=True)
        for line in cells:
            self._print(line, widths)

    def value(self, value: Any) -> None:
        """Print any value as JSON, indented by two, as YAML, or by the template."""
        if self._template is not None:
            self._templated(self._template.render(value))
            if absent := self._template.absent_members(value):
                self._note_absent(absent, value)
        elif self.format == "yaml":
            from eventd.resources.reading.yaml_text import write_yaml

            self._write(write_yaml(value))
        else:
            self.document(write_json(value, indent=2))

    def _note_absent(self, absent: Sequence[str], value: Mapping[str, Any]) -> None:
        """Print a note, once, on members that the template names and the output does not have."""
        if not self._noted:
            self._noted = True
            note(f"note: the output has no member {' and none '.join(absent)}; it has {', '.join(value)}")

    def _templated(self, text: str) -> None:
        """Print the result of the template for a value, with a newline at its end, because a prompt may follow."""
        self._write(text if text.endswith("\n") or not text else f"{text}\n")

    def flush(self) -> None:
        """Write out buffered output, because the next output may come much later."""
        self._stream.flush()

    def line(self, line: str = "") -> None:
        """Print lines of text, with characters that control a terminal escaped."""
        self._write(f"{printable_lines(line)}\n")

    def document(self, text: str) -> None:
        """Print a text for other programs unchanged, because its producer has already checked the content."""
        self._write(f"{text}\n")

    def _write(self, content: str) -> None:
        # Not every stream can encode every character, and no stream a lone surrogate.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(content.encode(encoding, "backslashreplace").decode(encoding))


def _csv_line(cells: Sequence[str]) -> str:
    """Return a line of CSV. Unprintable characters are escaped, except newlines and tabs: a terminal may show it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_WITHIN_LINES.sub(lambda one: printable(one[0]), c) for c in cells])
    return text.getvalue()


def _shown_at(at: int) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: _shown(row[str(at)], "-")


def _shown(value: Any, absent: str) -> str:
    """Return a plain value as the text of a cell: a string as it is, any other value as JSON."""
    return absent if value is None else value if isinstance(value, str) else write_json(value)


def _style(cell: str, *, header: bool) -> str:
    if header:
        return f"\x1b[1m{cell}\x1b[0m"
    style = _STYLES.get(cell.rstrip())
    return f"{style}{cell}\x1b[0m" if style else cell


def note(words: str) -> None:
    """Print a remark to stderr."""
    print(printable_lines(words), file=sys.stderr)  # the stream escapes what it cannot encode
