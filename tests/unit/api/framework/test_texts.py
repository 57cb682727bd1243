"""Texts that databases cannot store are refused by name, in the parameters of any operation."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from eventd.api.framework.operations import Params
from eventd.api.routes import OPERATIONS
from tests.support.operations import params_of

TEXTS = [
    pytest.param(params_of(operation), name, field.annotation is not str, id=f"{operation}.{name}")
    for operation in OPERATIONS
    for name, field in params_of(operation).model_fields.items()
    if field.annotation is str or get_args(field.annotation) == (str,)
]


@pytest.mark.parametrize(("params", "name", "many"), TEXTS)
@pytest.mark.parametrize("text", ["\udcff", "a\0b"])
def test_a_text_that_cannot_be_looked_up_is_refused(params: type[Params], name: str, many: bool, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        params.model_validate({name: [text] if many else text})
    messages: dict[Any, str] = {error["loc"]: error["msg"] for error in caught.value.errors()}
    refused = ("contains U+0000 or bytes that are not UTF-8", "raw data as a unicode string")
    assert any(words in message for words in refused for message in messages.values()), messages


def test_there_are_such_texts() -> None:
    assert len(TEXTS) > 20
