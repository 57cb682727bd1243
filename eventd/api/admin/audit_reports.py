"""Reports of audits: those in a folder of the settings, each in a folder of its own, as `routerctl audit` writes them.

Other programs write there, so sizes are bounded, and no link is followed.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Download, Params, Services
from eventd.api.framework.paging import After
from eventd.errors import Invalid, NotFound, TooLarge, Unavailable
from eventd.runtime.regular_files import NotRegular, read_regular
from eventd.text.quoting import quoted
from federation.errors import BadEvent
from federation.event import is_plain, micros
from federation.lenient import parse_time

PAGE_SIZE, MAX_PAGE_SIZE = 50, 200
MOST_FOLDERS: Final = 10_000
"""Maximum number of entries of the folder that are looked at."""
MOST_BYTES: Final = 32 << 20
"""Bytes of the largest report that is read, as JSON or as a page."""
MOST_READ: Final = 64 << 20
"""Bytes of reports after which a page of the list ends."""
_MOST_TEXT: Final = 300
_MOST_CONDITIONS: Final = 20
_TOKEN: Final = re.compile(r"([0-9]{1,20})/(.+)", re.DOTALL)
_JSON: Final = "report.json"
_PAGE: Final = "report.html"
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Lake(msgspec.Struct):
    id: str = ""


class _Totals(msgspec.Struct):
    expected: _Count | None = None
    delivered: _Count | None = None
    missing: _Count | None = None
    unproven: _Count | None = None
    completeness: float | None = None


class _Report(msgspec.Struct):
    """The members of `report.json` that the list shows; the others are skipped."""

    made_at: str
    verdict: Literal["complete", "incomplete", "unproven", ""]
    headline: list[str]
    lake: _Lake
    totals: _Totals
    failed: list[str] = []
    proven_until: str | None = None


class _Place(NamedTuple):
    """A report by its folder.

    `at`: when its `report.json` was written (ns). Together, these members distinguish it from a later report in the
    same folder.
    """

    at: int
    name: str
    size: int
    inode: int


class ListAudits(Params):
    """Which reports to list; the newest come first."""

    after: After = ""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description="Maximum number of reports of the page.")] = (
        PAGE_SIZE
    )


async def list_audits(services: Services, params: ListAudits) -> dict[str, Any]:
    """Return a page of the reports. Raises `Unavailable` if the folder cannot be read."""
    before, folder = _read_token(params.after), _folder(services)
    if folder is None:
        return {"configured": False, "complete": True, "audits": [], "next": None}
    return await asyncio.to_thread(_list, folder, before, params.limit)


def _folder(services: Services) -> Path | None:
    if services.settings is None:
        raise Unavailable("no node runs in this process", hint="start the node, or open the report in its folder")
    return services.settings.audit_reports


def _list(folder: Path, before: tuple[int, str] | None, limit: int) -> dict[str, Any]:
    places, complete = _find(folder)
    # later ones first, and those of one time by name
    later = [place for place in sorted(places, key=_order) if before is None or _order(place) > (-before[0], before[1])]
    page, read, following = list[_Place](), 0, None
    for place in later:
        size = min(place.size, MOST_BYTES)
        if len(page) == limit or (page and read + size > MOST_READ):
            following = f"{page[-1].at}/{page[-1].name}"
            break
        page.append(place)
        read += size
    rows = [_describe(folder, place) for place in page]
    return {"configured": True, "complete": complete, "audits": rows, "next": following}


def _order(place: _Place) -> tuple[int, str]:
    return -place.at, place.name


def _find(folder: Path) -> tuple[Sequence[_Place], bool]:
    """Return the reports of a folder in any order, and whether all of its entries were looked at."""
    places: list[_Place] = []
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= MOST_FOLDERS:
                    return places, False
                if not is_plain(entry.name) or not entry.is_dir(follow_symlinks=False):
                    continue
                try:
                    found = os.stat(os.path.join(entry.path, _JSON), follow_symlinks=False)
                except OSError:  # none yet: an audit is being written, or this is another folder
                    continue
                places.append(_Place(found.st_mtime_ns, entry.name, found.st_size, found.st_ino))
    except OSError as error:
        raise _unreadable(folder, error) from None
    return places, True


def _unreadable(folder: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot read the folder of audit_reports, {quoted(str(folder))}: {error.strerror}",
        hint="check that it exists, and that the user of the node may read it",
    )


_NONE: Final = _Report(made_at="", verdict="", headline=[], lake=_Lake(), totals=_Totals())


def _describe(folder: Path, place: _Place) -> dict[str, Any]:
    """Return the row of a report. `problem`: why its verdict is not known; empty if it is."""
    try:
        return _examine(folder, place)
    except (OSError, NotRegular):  # it may be readable the next time
        return {"name": place.name, **_show(_NONE), "problem": f"{_JSON} cannot be read"}


@lru_cache(maxsize=1000)
def _examine(folder: Path, place: _Place) -> dict[str, Any]:
    """Return the row of a report that can be read. Raises OSError and `NotRegular`; these failures are not cached."""
    try:
        report = msgspec.json.decode(_read(folder, place.name, _JSON), type=_Report)
        return {"name": place.name, **_show(report), "problem": ""}
    except TooLarge:
        problem = f"{_JSON} has more than {MOST_BYTES:,} bytes"
    except (msgspec.DecodeError, RecursionError, BadEvent):
        problem = f"{_JSON} is not a report of an audit, or of another version"
    return {"name": place.name, **_show(_NONE), "problem": problem}


def _show(report: _Report) -> dict[str, Any]:
    """Return the row of a report for the list. Raises `BadEvent` for an invalid time."""
    return {
        "verdict": report.verdict,
        "madeAt": _moment(report.made_at),
        "provenUntil": _moment(report.proven_until),
        "headline": " ".join(report.headline[:1])[:_MOST_TEXT],
        "failed": [text[:_MOST_TEXT] for text in report.failed[:_MOST_CONDITIONS]],
        "lake": report.lake.id[:_MOST_TEXT],
        **msgspec.structs.asdict(report.totals),
    }


def _moment(text: str | None) -> str | None:
    """Return a time as answers write it. Raises `BadEvent`."""
    return show_time(micros(parse_time(text))) if text else None


def _read(folder: Path, name: str, file: str) -> bytes:
    """Return a file of a report. Raises OSError, `NotRegular` and `TooLarge`."""
    own = os.open(folder / name, _FLAGS)
    try:
        content = read_regular(Path(file), MOST_BYTES + 1, folder=own).content
    finally:
        os.close(own)
    if len(content) > MOST_BYTES:
        raise TooLarge(f"{file} of {quoted(name)} has more than {MOST_BYTES:,} bytes", hint="open it in its folder")
    return content


def _read_token(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise Invalid(f"{quoted(text)} is not a token of this list", hint="use `next` of an answer")
    return int(found[1]), found[2]


class OneAudit(Params):
    """The report of one audit."""

    name: str = Field(description="The name of its folder, as the list shows it.")


async def download_report(services: Services, params: OneAudit) -> Download:
    """Return `report.html` of an audit. Raises `NotFound`, and `TooLarge`."""
    folder, name = _folder(services), params.name
    missing = NotFound(f"there is no report {quoted(name)}", hint="list the audits again: it may have been removed")
    if folder is None or not name or "/" in name or name in (".", ".."):
        raise missing
    try:
        content = await asyncio.to_thread(_read_page, folder, name)
    except (OSError, ValueError, NotRegular):
        raise missing from None
    return Download(f"{name}.html", content)


def _read_page(folder: Path, name: str) -> bytes:
    """Return the HTML page of a report.

    `report.json` must exist: it is written last, so without it the page may be from another run.
    """
    if not os.stat(folder / name / _JSON, follow_symlinks=False).st_size:
        raise NotRegular
    return _read(folder, name, _PAGE)
