"""A change by another process is never mistaken for a local one, in whatever order both are noticed."""

from __future__ import annotations

from eventd.log.core.topic_versions import TopicVersions


def known(versions: TopicVersions) -> list[int]:
    return [version for version in range(10) if versions.knows(version)]


def test_changes_that_were_made_here_are_known() -> None:
    versions = TopicVersions()
    versions.read(4)
    versions.made(5)
    versions.made(6)
    assert known(versions) == [4, 5, 6]


def test_a_change_elsewhere_is_unknown_until_it_is_read() -> None:
    versions = TopicVersions()
    versions.read(4)
    versions.made(6)
    versions.made(7)
    assert known(versions) == [4]
    versions.read(5)
    assert known(versions) == [5, 6, 7]


def test_what_was_made_here_is_known_however_late_a_reading_ends() -> None:
    versions = TopicVersions()
    versions.read(4)
    versions.made(5)
    versions.made(6)
    versions.read(5)
    assert known(versions) == [5, 6]


def test_a_database_that_is_behind_what_was_read_is_read_again() -> None:
    versions = TopicVersions()
    versions.read(4)
    versions.made(5)
    versions.read(2)
    assert known(versions) == [2]
    versions.made(3)
    assert known(versions) == [2, 3]


def test_nothing_is_known_of_a_new_epoch() -> None:
    versions = TopicVersions()
    versions.read(4)
    versions.made(6)
    versions.forget()
    assert known(versions) == [0]
    versions.read(5)
    assert known(versions) == [5]
