from __future__ import annotations

import pytest

from eventd.errors import Invalid
from eventd.resources.validation.resource import from_stored
from eventd.store.rows.registry import StoredResource
from tests.unit.resources.samples import EVERYTHING, FEDERATION, accepted, row


def test_what_is_stored_is_read_back() -> None:
    for resource in accepted(EVERYTHING):
        assert from_stored(row(resource)) == resource


def test_a_kind_of_another_version_is_named() -> None:
    with pytest.raises(Invalid) as refused:
        from_stored(StoredResource("x/v9", "EventGroup", "edge", {}, {}, 1, 1, 1))
    assert str(refused.value) == (
        "the stored EventGroup/edge is of x/v9 EventGroup, which this program does not know "
        "(run the version that stored it)"
    )


def test_a_spec_that_no_longer_fits_is_named_with_its_path() -> None:
    with pytest.raises(Invalid) as refused:
        from_stored(
            StoredResource(FEDERATION, "EventGroup", "edge", {}, {"nodeName": "a", "listen": {"port": "x"}}, 1, 1, 1)
        )
    assert str(refused.value) == (
        "the stored EventGroup/edge cannot be used: spec.listen.port must be a whole number, not 'x' "
        "(apply it again in the form of this version)"
    )
