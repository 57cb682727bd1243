"""Records as readers get them, cut out of the lines of a block: nothing is decoded where nothing is left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eventd.log.blocks import Block, names
from eventd.log.records import View, body_of_event, content_size, render
from federation.event import expiry_micros, is_alive, read_outlines
from federation.lines import encode_lines, split_line

_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_LINE = re.compile(rf'\t\{{("\$node":{_TEXT},)?(?:"\$tag":{_TEXT},)?(.*)')
"""A line, its record in two parts: all before the tag, and all behind it. No tab is in a record, nor in a path."""
_UNTAGGED = frozenset([""])
_TAG = '"$tag":'


def texts_of(block: Block, seqs: Sequence[int], lines: Sequence[str], view: View) -> list[str]:
    """The records of some of a block's lines, none of them empty, as JSON texts. `seqs`: those of the lines."""
    if not lines:
        return []
    if not view.data or (not view.meta and '"meta":' in block.lines):
        ts = block.recorded_at // 1000
        return [render(seq, ts, split_line(line)[2], view) for seq, line in zip(seqs, lines, strict=True)]
    told = names(block.types)
    begin = f',"$ts":{block.recorded_at // 1000},'
    if not view.tags and (told is None or told - _UNTAGGED or _TAG in block.lines):  # a tag may be empty
        parts = _LINE.findall("\n".join(lines))
        return [f'{{"$seq":{seq}{begin}{node}{rest}' for seq, (node, rest) in zip(seqs, parts, strict=True)]
    cut = _indent(block)
    if cut:
        return [f'{{"$seq":{seq}{begin}{line[cut:]}' for seq, line in zip(seqs, lines, strict=True)]
    return [f'{{"$seq":{seq}{begin}{split_line(line)[2][1:]}' for seq, line in zip(seqs, lines, strict=True)]


def _indent(block: Block) -> int:
    """Where the first member of a record begins in every line of a block; 0 where that differs."""
    digits = len(str(block.position))
    return digits + 3 if block.own and digits == len(str(block.last)) else 0


def records_of_events(block: Block, now: int) -> Block:
    """A block of a group's events as one of records; what has expired has an empty line."""
    bodies = [split_line(line)[2] for line in block.lines.split("\n")[:-1]]
    made = [*map(body_of_event, bodies)]
    if not is_alive(block.expires_first, now):
        expiries = map(expiry_micros, read_outlines(bodies))
        made = [body if is_alive(expiry, now) else "" for body, expiry in zip(made, expiries, strict=True)]
    lines = encode_lines((position, "", body) for position, body in enumerate(made, block.position))
    return block._replace(own=1, bytes=sum(map(content_size, made)), lines=lines)
