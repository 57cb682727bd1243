from __future__ import annotations

import subprocess
import sys

import pytest

from eventd.lake import layout
from eventd.lake.layout import ARCHIVE, SegmentName, archived, landing, parse_name, parse_path, slot_of, slug
from eventd.lake.schema import Ledger
from tests.support.lakes import EPOCH, NOON


def test_a_segment_is_found_again_by_its_name() -> None:
    place = landing(Ledger.DELIVERIES, "Site A", EPOCH, 7, 1_000_007, at=NOON)
    assert parse_path(place.data) == parse_path(place.manifest) == parse_name(place.name) == place
    assert place.data.startswith("landing/deliveries/dt=2026-11-20/node=site-a-")
    assert place.data.endswith(f"-{EPOCH}-00000000000000000007-00000000000001000007.parquet")


def test_the_archive_has_names_of_its_own() -> None:
    place = archived(Ledger.EVENTS, "a", EPOCH, 0, 9, day="2026-11-19")
    assert (place.tree, place.day) == (ARCHIVE, "2026-11-19")
    assert parse_name(place.name) == place


def test_names_sort_as_their_ranges_do() -> None:
    names = [landing(Ledger.EVENTS, "a", EPOCH, after, after + 5, at=NOON).name for after in (0, 5, 90, 1_000)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "node", ["site-a", "Site-A", "site.a", "site_a", "ä", "ö", "a" * 80, "a" * 81, "", "../x", "1"]
)
def test_a_slug_is_safe_in_a_path(node: str) -> None:
    assert set(slug(node)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert 8 <= len(slug(node)) <= 49
    assert not slug(node).startswith("-")


def test_two_nodes_never_share_a_slug() -> None:
    nodes = ["site-a", "Site-A", "site.a", "site_a", "site a", "a" * 80, "a" * 81, "ä", "ö", ""]
    assert len({slug(node) for node in nodes}) == len(nodes)


@pytest.mark.parametrize(
    "path",
    [
        "eventd-lake.json",
        "nodes/a-12345678/e.json",
        "landing/events/dt=2026-11-20/node=a/.a-e-00000000000000000000-00000000000000000009.parquet.3.tmp",
        "landing/events/dt=2026-11-20/node=a/b-e-00000000000000000000-00000000000000000009.parquet",
        "landing/orders/dt=2026-11-20/node=a/a-e-00000000000000000000-00000000000000000009.parquet",
        "landing/events/dt=2026-11-20/node=a/a-e-0-9.parquet",
        "landing/events/dt=9999-99-99/node=a/a-e-00000000000000000000-00000000000000000009.parquet",
        "landing/events/dt=2026-02-30/node=a/a-e-00000000000000000000-00000000000000000009.parquet",
        "landing/events/dt=0000-01-01/node=a/a-e-00000000000000000000-00000000000000000009.parquet",
        "landing/events/dt=2026-11-20/node=a/a-e-00000000000000000000-00000000000000000009.csv",
    ],
)
def test_other_files_are_no_segments(path: str) -> None:
    assert parse_path(path) is None


def test_a_slot_is_a_minute_of_the_events_own_time() -> None:
    assert slot_of(NOON) == NOON // 60_000_000
    assert slot_of(NOON + 59_999_999) == slot_of(NOON)
    assert slot_of(NOON + 60_000_000) == slot_of(NOON) + 1
    assert slot_of(-1) == -1


def test_the_days_of_a_lake_are_in_utc() -> None:
    assert layout.day_of(NOON - NOON % 86_400_000_000) == "2026-11-20"
    assert layout.day_of(NOON - NOON % 86_400_000_000 - 1) == "2026-11-19"


def test_a_place_is_made_of_what_it_says() -> None:
    assert (
        SegmentName(*landing(Ledger.GAPS, "a", EPOCH, 1, 2, at=NOON)).name
        == landing(Ledger.GAPS, "a", EPOCH, 1, 2, at=NOON).name
    )


def test_names_and_manifests_need_no_optional_package() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'fsspec']));"
        "import eventd.lake.layout, eventd.lake.manifest, eventd.lake.schema, eventd.lake.storage"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
