"""The command wait: exit statuses, and a condition that becomes true while the command waits."""

from __future__ import annotations

import threading

from tests.integration.cli.conftest import EDGE, Api, Control

REFUSED = "http://127.0.0.1:1"
"""Where nothing listens."""


def test_a_condition_that_is_met_ends_the_wait_at_once(routerctl: Control) -> None:
    routerctl.edge()
    told = routerctl("wait", "ep/to-cloud", "--for", "caught-up", "--timeout", "1h")
    assert told.lines == ["eventpeer/to-cloud condition met"]
    assert routerctl("wait", "ep", "to-cloud", "--for", "generation>0", "-o", "name").lines == ["eventpeer/to-cloud"]
    shown = routerctl("wait", "EventPeer/to-cloud", "--for", "state=running", "-o", "json").json
    assert (shown["object"], shown["met"]) == ("EventPeer/to-cloud", True)


def test_a_time_out_has_status_4_and_the_last_state(routerctl: Control) -> None:
    routerctl.edge()
    told = routerctl("wait", "ep/to-cloud", "--for", "state=paused", "--timeout", "0s", code=4)
    assert told.err == "error: eventpeer/to-cloud is not paused after 0s: running, 0 events waiting\n"
    told = routerctl("wait", "eg/edge", "--for", "generation>7", "--timeout", "1s", code=4)
    assert told.err == "error: eventgroup/edge is not generation>7 after 1s: generation 1\n"
    assert routerctl("wait", "ep/none", "--for", "caught-up", code=3).err.startswith("error: EventPeer/none does not")


def test_each_reason_to_end_has_its_own_status(routerctl: Control) -> None:
    routerctl.edge()
    assert "its conditions: ready" in routerctl("wait", "node", "--for", "deleted", code=2).err
    assert "'soon' is not a condition" in routerctl("wait", "ep/to-cloud", "--for", "soon", code=2).err
    routerctl("wait", "ep/none", "--for", "caught-up", code=3)
    routerctl("wait", "ep/to-cloud", "--for", "state=paused", "--timeout", "0s", code=4)


def test_a_change_by_another_client_ends_the_wait(sqlite_url: str, control: Control) -> None:
    with Api(sqlite_url) as api:
        control("--server", api.url, "apply", "-f", control.file(EDGE))
        pause = threading.Timer(0.5, lambda: _delete(api))
        pause.start()
        try:
            told = control("--server", api.url, "wait", "ep/to-cloud", "--for", "deleted", "--timeout", "1m")
        finally:
            pause.join()
        assert told.lines == ["eventpeer/to-cloud condition met"]


def _delete(api: Api) -> None:
    from urllib.request import Request, urlopen

    with urlopen(Request(f"{api.url}/api/v1/resources/EventPeer/to-cloud", method="DELETE")) as answer:
        assert answer.status == 200


def test_a_node_that_does_not_answer_is_waited_for(control: Control) -> None:
    told = control("--server", REFUSED, "wait", "node", "--for", "ready", "--timeout", "1s", code=4)
    assert told.err.startswith("error: node is not ready after 1s: cannot reach")
    control("--server", REFUSED, "wait", "ep/x", "--for", "caught-up", "--timeout", "1m", code=1)
