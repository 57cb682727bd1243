"""routerctl queue."""

from __future__ import annotations

from tests.integration.cli.conftest import Control


def test_queues_are_listed_with_their_jobs(routerctl: Control) -> None:
    assert routerctl("queue", "list", "-o", "name").lines == []
    routerctl("topic", "put", "work", "--set", "type=queue")
    routerctl("topic", "write", "work", "1", "2")
    [row] = routerctl("queue", "list", "-o", "json").json
    assert (row["queue"], row["ready"], row["leased"], row["oldestReady"]["seq"]) == ("work", 2, 0, 1)
    assert routerctl("queue", "list", "--prefix", "z", "-o", "name").lines == []
    assert routerctl("queue", "leases", "work", "-o", "name").lines == []
    assert routerctl("queue", "leases", "none", code=3).err.startswith("error: ")


def test_a_longer_list_says_how_to_continue(routerctl: Control) -> None:
    for name in ("a", "b"):
        routerctl("topic", "put", name, "--set", "type=queue")
    first = routerctl("queue", "list", "--limit", "1", "-o", "name")
    assert (first.lines, first.err) == (["a"], "note: there are more: continue with --after a\n")
    assert routerctl("queue", "list", "--after", "a", "-o", "name").lines == ["b"]


def test_a_job_that_is_not_delayed_cannot_be_released(routerctl: Control) -> None:
    routerctl("topic", "put", "todo", "--set", "type=queue")
    routerctl("topic", "write", "todo", "1")
    refused = routerctl("queue", "release", "todo", "1", code=1)
    assert (refused.out, refused.err.startswith("error: not delayed: 1")) == ("0 jobs released\n", True)


def test_a_queue_without_dead_letters_has_none_to_retry(routerctl: Control) -> None:
    routerctl("topic", "put", "todo", "--set", "type=queue", "--set", "dead_letter=graves")
    assert routerctl("queue", "retry", "todo", code=3).err.startswith("error: ")
    routerctl("topic", "put", "graves")
    assert routerctl("queue", "retry", "todo").out == "0 dead letters returned to the queue\n"
