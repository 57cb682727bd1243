"""The error of an invalid body says where it is wrong, and what would be valid."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.framework.decoding import decode
from eventd.api.topics.records import DiffBody
from eventd.api.topics.write import WriteBody
from eventd.errors import Invalid
from eventd.log.core.topic_config import TopicConfig


@pytest.mark.parametrize(
    ("model", "text", "told"),
    [
        (TopicConfig, '{"durability":"strong"}', "`durability` must be disk, ephemeral, fsync or memory"),
        (TopicConfig, '{"discard":"x"}', "`discard` must be old or reject"),
        (TopicConfig, '{"cap_records":"x"}', "`cap_records` must be a whole number, not text"),
        (TopicConfig, '{"cap_records":-1}', "`cap_records` must be at least 0"),
        (TopicConfig, '{"cap_records":1.5}', "`cap_records` must be a whole number, not a number"),
        (TopicConfig, '{"durable":null}', "`durable` must be true or false, not null"),
        (TopicConfig, "[]", "the body must be an object, not a list"),
        (WriteBody, "{}", "`records` is missing"),
        (WriteBody, '{"records":[{"data":1},{}]}', "`records[1].data` is missing"),
        (WriteBody, '{"records":[{"tag":1,"data":1}]}', "`records[0].tag` must be text or null, not a whole number"),
        (WriteBody, '{"records":[{"data":1}],"config":{"type":"x"}}', "`config.type` must be log or queue"),
        (DiffBody, '{"node":5}', "`node` must be text, a list or null, not a whole number"),
        (DiffBody, '{"node":[5]}', "`node[0]` must be text, not a whole number"),
        (DiffBody, '{"limit":4294967296}', "`limit` must be at most 4294967295"),
        (DiffBody, '{"from_seq":18446744073709551616}', "`from_seq` must be at most 18446744073709551615"),
    ],
)
def test_it_is_said_in_words_of_the_one_who_wrote_it(model: type[Any], text: str, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        decode(text.encode(), model)
    assert refused.value.message == told
