"""The page about the wire of streams is true: its bytes, its messages with their members, and the texts of refusals."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from eventd.api.quic import answers, budgets, session
from eventd.streams import messages
from eventd.streams.frames import StreamFrameReader
from eventd.streams.layouts import PublishBatch, read_publish, write_publish
from eventd.streams.messages import Message, read_message
from tests.support.source import ROOT

PAGE = (ROOT / "docs" / "reference" / "wire-streams.md").read_text()
EXAMPLES = [line for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
ROWS = {
    name: re.findall(r"`(\w+)`", members)
    for name, members in re.findall(r"^\| `(\w+)` \| ([^|]*)(?: \|[^|]*)? \|$", PAGE, re.MULTILINE)
}
ELSEWHERE = ("event", "event_batch", "gap", "ok")
"""Messages whose members are said in a sentence, an example, or another table."""
KINDS: dict[str, Any] = {
    str(msgspec.inspect.type_info(kind).tag): kind  # type: ignore[attr-defined]
    for kind in vars(messages).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
}
TEXTS = [
    value
    for module in (answers, budgets, session)
    for name, value in sorted(vars(module).items())
    if name.isupper() and isinstance(value, str) and not name.startswith("_")
]


def test_the_bytes_of_the_example_are_a_publish() -> None:
    block = PAGE.partition("an empty payload to")[2].partition("```text\n")[2].partition("```")[0]
    shown = bytes.fromhex("".join(re.split(r" {3,}", line)[0] for line in block.splitlines()))
    batch = PublishBatch("t1", "default", "s", [b"hi", b""])
    assert shown == write_publish(batch)
    reader = StreamFrameReader()
    reader.add(shown)
    frame = reader.take()
    assert frame is not None
    assert read_publish(frame.payload) == batch


@pytest.mark.parametrize("text", [text for text in EXAMPLES if text.startswith('{"type"')])
def test_a_message_of_an_example_can_be_read(text: str) -> None:
    read_message(text.encode())


@pytest.mark.parametrize("name", sorted(KINDS.keys() - ELSEWHERE))
def test_a_message_has_the_members_of_its_row(name: str) -> None:
    assert sorted(ROWS[name]) == sorted(field.encode_name for field in msgspec.structs.fields(KINDS[name]))


@pytest.mark.parametrize("text", TEXTS)
def test_each_text_that_clients_get_is_on_the_page(text: str) -> None:
    assert text in " ".join(PAGE.split())
