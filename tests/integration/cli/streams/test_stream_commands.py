"""routerctl stream: create, list, describe and delete, each on a database and over the API."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Control, everywhere

ORDERS = "t1/default/orders"


@everywhere
def test_a_stream_from_its_creation_to_its_deletion(routerctl: Control) -> None:
    made = routerctl("stream", "create", ORDERS, "--durability", "memory", "--set", "ttl_ms=10m")
    assert made.out == f"stream/{ORDERS} created\n"
    routerctl("topic", "write", "stream:t1:default:orders", '"a"', '"b"', '"c"')
    assert routerctl("stream", "list", "--no-headers").lines == [f"{ORDERS}  0  3  3  9  no"]
    found = routerctl("stream", "describe", ORDERS, "-o", "json").json
    assert (found["stream"], found["topic"]) == (ORDERS, "stream:t1:default:orders")
    assert (found["config"]["durability"], found["config"]["ttl_ms"]) == ("memory", 600_000)
    assert (found["earliest_offset"], found["tail_offset"]) == (0, 3)
    assert "Offsets:      0 to 2; the next is 3" in routerctl("stream", "describe", ORDERS).lines
    assert routerctl("stream", "delete", ORDERS).out == f"stream/{ORDERS} deleted\n"
    assert routerctl("stream", "list", "-o", "json").json == []


def test_an_existing_stream_is_not_created_again(routerctl: Control) -> None:
    routerctl("stream", "create", ORDERS, "--durability", "fsync")
    refused = routerctl("stream", "create", ORDERS, "--durability", "memory", code=1)
    assert refused.err == (
        f"error: stream {ORDERS} exists already"
        " (routerctl topic set stream:t1:default:orders changes its configuration)\n"
    )
    assert routerctl("stream", "describe", ORDERS, "-o", "json").json["config"]["durability"] == "fsync"


def test_only_streams_are_listed_and_only_those_of_a_prefix(routerctl: Control) -> None:
    for name in ("t1/default/a", "t1/other/a", "t2/default/a"):
        routerctl("stream", "create", name)
    for topic in ("jobs", "stream:t1", "stream:t1:default:a:b"):
        routerctl("topic", "put", topic)

    def names(*options: str) -> list[str]:
        return routerctl("stream", "list", "-o", "name", *options).lines

    assert names() == ["t1/default/a", "t1/other/a", "t2/default/a"]
    assert names("--prefix", "t1/") == ["t1/default/a", "t1/other/a"]
    assert names("--prefix", "t1/o") == ["t1/other/a"]


def test_a_queue_is_no_stream(routerctl: Control) -> None:
    routerctl("topic", "put", "stream:t1:default:jobs", "--set", "type=queue")
    for command in ("describe", "delete"):
        refused = routerctl("stream", command, "t1/default/jobs", code=3)
        assert "t1/default/jobs is not a stream: topic stream:t1:default:jobs is a queue" in refused.err
    refused = routerctl("stream", "create", "t1/default/jobs", code=1)
    assert "t1/default/jobs is not a stream: topic stream:t1:default:jobs is a queue" in refused.err
    refused = routerctl("stream", "create", ORDERS, "--set", "type=queue", code=1)
    assert "a queue cannot be a stream" in refused.err


def test_a_missing_stream_is_not_found(routerctl: Control) -> None:
    hint = f"error: stream {ORDERS} does not exist (`routerctl stream list` shows the streams)\n"
    assert routerctl("stream", "describe", ORDERS, code=3).err == hint
    assert routerctl("stream", "delete", ORDERS, code=3).err == hint
    assert routerctl("stream", "delete", ORDERS, "--ignore-not-found").out == ""


def test_a_stream_with_records_is_kept_if_only_an_empty_one_may_go(routerctl: Control) -> None:
    routerctl("stream", "create", ORDERS)
    routerctl("topic", "write", "stream:t1:default:orders", "1")
    routerctl("stream", "delete", ORDERS, "--if-empty", code=1)
    assert routerctl("stream", "list", "-o", "name").lines == [ORDERS]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("orders", "'orders' is not the name of a stream (write TENANT/NAMESPACE/STREAM, such as t1/default/orders)"),
        ("a/b/c/d", "'a/b/c/d' is not the name of a stream"),
        ("t1//orders", "'' is not a name"),
        ("t1/default/\x1b[31m", "'\\x1b[31m' is not a name"),
        ("t1/de:fault/orders", "'de:fault' is not a name"),
        ("t1/default/" + "x" * 81, "is not a name (a name is 1 to 80"),
        ("t1/default/ü", "'ü' is not a name"),
    ],
)
def test_what_cannot_be_the_name_of_a_stream_is_refused(routerctl: Control, name: str, words: str) -> None:
    for command in ("create", "describe", "delete"):
        assert words in routerctl("stream", command, name, code=1).err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "nonsense=1"), "a topic has no field 'nonsense'"),
        (("--set", "ttl_ms=soon"), "'soon' is not a duration"),
        (("--durability", "stone"), "durability"),
    ],
)
def test_a_wrong_configuration_names_what_is_wrong(routerctl: Control, options: tuple[str, ...], words: str) -> None:
    assert words in routerctl("stream", "create", ORDERS, *options, code=1).err
    assert routerctl("stream", "list", "-o", "json").json == []
