"""Converts stored records to JSON texts for readers, and blocks of events to blocks of records. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eventd.log.core.blocks import NO_PATH, Block, names
from eventd.log.core.records import View, body_of_event, content_size, data_begin, render
from federation.event import expiry_micros, is_alive, read_outlines

_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_BODY = re.compile(rf'\n\{{("\$node":{_TEXT},)?(?:"\$tag":{_TEXT},)?(.*)')
"""Matches a body after a line break: its node member, and everything after its tag. Bodies contain no line breaks."""
_UNTAGGED = frozenset([""])
_TAG = '"$tag":'


def texts_of(block: Block, seqs: Sequence[int], bodies: Sequence[str], view: View) -> list[str]:
    """Return some records of a block as JSON texts, given their `seqs` and their `bodies`, none of which is empty."""
    if not bodies:
        return []
    if view.bare:
        return _data_of(bodies)
    if not view.data or (not view.meta and '"meta":' in block.text):
        ts = block.recorded_at // 1000
        return [render(seq, ts, body, view) for seq, body in zip(seqs, bodies, strict=True)]
    types = names(block.types)
    begin = f',"$ts":{block.recorded_at // 1000},'
    if not view.tags and (types is None or types - _UNTAGGED or _TAG in block.text):  # a tag may be empty
        parts = _BODY.findall("\n".join(["", *bodies]))
        return [f'{{"$seq":{seq}{begin}{node}{rest}' for seq, (node, rest) in zip(seqs, parts, strict=True)]
    return [f'{{"$seq":{seq}{begin}{body[1:]}' for seq, body in zip(seqs, bodies, strict=True)]


def _data_of(bodies: Sequence[str]) -> list[str]:
    """Return the data in each body. Fast if the bodies have the same beginning, as bodies of one block usually do."""
    at = data_begin(bodies[0])
    start = bodies[0][:at]
    return [body[at if body.startswith(start) else data_begin(body) : -1] for body in bodies]


def records_of_events(block: Block, now: int) -> Block:
    """Return a block of a group's events as a block of records, in which expired events have empty lines."""
    bodies = block.bodies()
    made = [*map(body_of_event, bodies)]
    if not is_alive(block.expires_first, now):
        expiries = map(expiry_micros, read_outlines(bodies))
        made = [body if is_alive(expiry, now) else "" for body, expiry in zip(made, expiries, strict=True)]
    return block._replace(own=1, bytes=sum(map(content_size, made)), paths=NO_PATH, text="\n".join([*made, ""]))
