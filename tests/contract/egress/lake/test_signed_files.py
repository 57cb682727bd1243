"""A node keeps in its database what it has signed in a lake, and forgets it with the cursors of that lake."""

from __future__ import annotations

from msgspec.structs import replace

from eventd.egress.lake.protocol import SEGMENTS, SignedFiles
from eventd.egress.lake.signed_files import keep_signed_files, signed_files
from eventd.egress.lake.sink import enrol
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import read_cursors
from eventd.testing import NOW

FILES = SignedFiles(node="a", epoch="e" * 16, tree="t" * 16, size=7)


async def kept(log: EventLog, lake: str) -> dict[str, SignedFiles]:
    cursors = {cursor.name: cursor for cursor in await log.database.read(read_cursors, SEGMENTS)}
    return signed_files(["a"], cursors, lake)


async def test_what_was_signed_is_kept_with_the_cursors_of_its_lake(log: EventLog) -> None:
    await log.database.write(enrol, ["a"], "one", NOW)
    assert await kept(log, "one") == {}
    grown = replace(FILES, size=9)
    for files, now in ((FILES, FILES), (grown, grown), (FILES, grown)):
        assert await log.database.write(keep_signed_files, [files]) == []
        assert await kept(log, "one") == {"a": now}, "a tree only grows"
    assert await kept(log, "two") == {}
    await log.database.write(enrol, ["a"], "one", NOW)
    assert await kept(log, "one") == {"a": grown}, "the cursors exist already"
    await log.database.write(enrol, ["a"], "two", NOW)
    assert await kept(log, "two") == {}


async def test_a_tree_that_another_one_replaces_is_named_unless_the_epoch_is_new(log: EventLog) -> None:
    await log.database.write(enrol, ["a"], "one", NOW)
    await log.database.write(keep_signed_files, [FILES])
    other = replace(FILES, tree="u" * 16, size=1)
    assert await log.database.write(keep_signed_files, [other]) == [FILES]
    assert await log.database.write(keep_signed_files, [replace(FILES, epoch="f" * 16)]) == []
