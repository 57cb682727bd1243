from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.text.size import KIB, LARGEST, MIB, BadSize, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size", "canonical"),
    [
        ("0", 0, "0"),
        ("1048576", MIB, "1MiB"),
        ("1536KiB", 1536 * KIB, "1536KiB"),
        ("8MiB", 8 * MIB, "8MiB"),
        ("1GiB", 1024 * MIB, "1GiB"),
        ("10MB", 10_000_000, "10000000"),
        ("17B", 17, "17"),
    ],
)
def test_a_size_is_read_and_written(text: str, size: int, canonical: str) -> None:
    assert parse_size(text) == size
    assert format_size(size) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB"),
        ("-1", "'-1' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB"),
        ("1.5MiB", "'1.5MiB' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB"),
        ("8 MiB", "'8 MiB' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB (did you mean 8MiB?)"),
        ("8 ", "'8 ' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB"),
        ("8M", "'8M' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB (did you mean 8MiB?)"),
        ("8Mi", "'8Mi' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB (did you mean 8MiB?)"),
        ("8mb", "'8mb' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB (did you mean 8MB?)"),
        ("8lines", "'8lines' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB"),
        ("9000000000GiB", "'9000000000GiB' is larger than the largest size, 9223372036854775807 bytes"),
    ],
)
def test_what_is_no_size_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(BadSize) as refused:
        parse_size(text)
    assert str(refused.value) == message


@given(st.integers(0, LARGEST))
def test_the_canonical_text_reads_back_to_the_same_size(size: int) -> None:
    assert parse_size(format_size(size)) == size
