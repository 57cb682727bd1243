"""Traces of real nodes, as a collector gets them over OTLP, and nodes whose collector is down."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.tracing.starting import FLUSH_SECONDS
from tests.support.callback_program import ReceiverThread
from tests.support.collector import CollectedSpan, Collector, collecting
from tests.support.declared import callback, group, peer
from tests.support.derived import ROUTES, plugin, program, subscription
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import ApiError, NodeProcess
from tests.support.source import ROOT
from tests.support.waiting import wait_for

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
KEY = "0123456789abcdef0123456789abcdef"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
"""Spans are exported every 50 ms."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.close()


def traced(processes: Processes, name: str, collector: Collector, **env: str) -> NodeProcess:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **SOON, **env}
    return NodeProcess(processes, name, **settings)


def emit(node: NodeProcess, *subjects: str, traceparent: str = PARENT) -> None:
    events = [{"type": "link.up", "subject": subject} for subject in subjects]
    node.request("POST", "/api/v1/groups/mesh/events", {"events": events}, {"traceparent": traceparent})


def test_one_event_over_three_nodes_is_one_picture(processes: Processes, collector: Collector) -> None:
    nodes = [traced(processes, name, collector) for name in ("a", "b", "c")]
    chain(*nodes)
    emit(nodes[0], "wg0")
    wait_for(lambda: count_of(nodes[2]) == 1, "the event to reach c")

    def sends() -> list[CollectedSpan]:
        [request] = collector.named("POST /api/v1/groups/{group}/events") or [None]
        return [span for span in collector.named("send") if request is not None and request.id in span.links]

    wait_for(lambda: len(sends()) == 2 and len(collector.named("receive", accepted=1)) == 2, "the spans to be exported")
    [request] = collector.named("POST /api/v1/groups/{group}/events")
    assert (request.trace_id, request.parent) == (TRACE, PARENT.split("-")[2])
    assert request.attributes["http.response.status_code"] in (200, 201)
    assert request.resource["service.name"] == "routerd-eventd"
    sent = sorted(sends(), key=lambda span: str(span.attributes["eventd.node"]))
    assert [(span.attributes["eventd.node"], span.attributes["eventd.peer"]) for span in sent] == [
        ("a", "b"),
        ("b", "c"),
    ]
    for span in sent:
        [received] = [one for one in collector.named("receive") if one.parent == span.id]
        assert received.trace_id == span.trace_id
        assert request.id in received.links
        assert received.attributes["eventd.node"] == span.attributes["eventd.peer"]
        assert received.attributes["eventd.accepted"] == 1
        assert [received.id] in [commit.links for commit in collector.named("commit")]
    assert [request.id] in [commit.links for commit in collector.named("commit", records=1)]


def test_a_plugin_and_an_endpoint_continue_the_trace_and_strangers_make_none(
    processes: Processes, collector: Collector, tmp_path: Path
) -> None:
    node = traced(processes, "a", collector, EVENTD_CALLBACK_ALLOW="127.0.0.1", EVENTD_API_KEYS=KEY)
    node.headers = {"Authorization": f"Bearer {KEY}"}
    said = tmp_path / "said"
    run = program(tmp_path, f"import os; open({str(said)!r}, 'w').write(os.environ['TRACEPARENT'])\n{ROUTES}")
    receiver = ReceiverThread().start()
    try:
        node.apply(
            group("a", name="mesh"),
            plugin(run),
            subscription("link.up", group="mesh"),
            callback("hook", group="mesh", url=receiver.url, allowPlain=True),
        )
        with pytest.raises(ApiError, match="401"):
            node.request("GET", "/api/v1/status", others={"Authorization": "Bearer nonsense", "traceparent": PARENT})
        with pytest.raises(ApiError, match="404"):
            node.ask("GET", "/groups/nowhere/events")
        emit(node, "wg0")
        wait_for(lambda: receiver.calls, "the callback")
    finally:
        receiver.stop()
    wait_for(lambda: collector.named("run") and collector.named("attempt"), "the spans to be exported")
    [request] = collector.named("POST /api/v1/groups/{group}/events")
    [ran], [attempt] = collector.named("run"), collector.named("attempt")
    assert request.id in ran.links
    assert request.id in attempt.links
    assert said.read_text().split("-")[1:3] == [ran.trace_id, ran.id]
    assert receiver.calls[0].headers["traceparent"] == f"00-{attempt.trace_id}-{attempt.id}-01"
    assert collector.named("GET /api/v1/status") == []
    [missing] = collector.named("GET /api/v1/groups/{group}/events")
    assert (missing.attributes["http.response.status_code"], missing.attributes["error.type"]) == (404, "not_found")
    assert not missing.failed, "the fault is the caller's"


@pytest.mark.parametrize("trouble", ["dead", "refusing", "redirecting", "silent"])
def test_a_node_works_and_stops_in_time_whatever_its_collector_does(
    processes: Processes, collector: Collector, trouble: str
) -> None:
    if trouble == "dead":
        collector.url = f"http://127.0.0.1:{free_port()}"
    elif trouble == "refusing":
        collector.status = 500
    elif trouble == "redirecting":
        collector.status = 307
    else:
        collector.held.clear()
    node = traced(processes, "a", collector)
    node.apply(group("a", name="mesh"))
    for number in range(50):
        emit(node, f"wg{number}")
    assert count_of(node) == 50
    if trouble == "silent":
        wait_for(lambda: collector.requests, "a request to the collector")
    if trouble == "redirecting":
        wait_for(lambda: 'result="failed"} 0.0' not in metrics(node, "*/*"), "spans that nothing has taken")
        assert 'trace_spans_total{result="exported"} 0.0' in metrics(node, "*/*")
    begun = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - begun < FLUSH_SECONDS + 3
    assert collector.spans == []
    assert "Traceback" not in node.process.log()
    assert collector.url not in node.process.log(), "it may hold a password"


def test_an_answer_without_an_end_costs_no_memory(processes: Processes, collector: Collector) -> None:
    collector.is_endless = True
    node = traced(processes, "a", collector)
    node.apply(group("a", name="mesh"))
    before = resident_mib(node)
    for number in range(20):
        emit(node, f"wg{number}")
        wait_for(lambda number=number: collector.requests > number, "an export")  # type: ignore[misc]
    assert resident_mib(node) - before < 20
    wait_for(lambda: collector.named("commit"), "the spans")


def resident_mib(node: NodeProcess) -> float:
    status = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


def test_metrics_have_exemplars_for_those_that_read_them(processes: Processes, collector: Collector) -> None:
    node = traced(processes, "a", collector)
    node.apply(group("a", name="mesh"))
    emit(node, "wg0")
    plain = metrics(node, "text/plain")
    assert "trace_id" not in plain
    wait_for(lambda: 'trace_spans_total{result="exported"} 0.0' not in metrics(node, "*/*"), "an exported span")
    assert "trace_id" not in metrics(node, "application/openmetrics-text;q=0, text/plain")
    shown = metrics(node, "application/openmetrics-text; version=1.0.0, text/plain;q=0.5")
    found = re.findall(
        r'commit_duration_seconds_bucket{le="[^"]*"} [0-9.]+ # {span_id="(\w+)",trace_id="(\w+)"}', shown
    )
    assert found, shown
    assert shown.endswith("# EOF\n")
    wait_for(
        lambda: {(span.id, span.trace_id) for span in collector.named("commit")} >= set(found),
        "the spans that the exemplars name",
    )


def test_tracing_without_its_extra_is_a_warning(processes: Processes, collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("raise ImportError('not installed')\n")
    node = traced(processes, "a", collector, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    [line] = [json.loads(line) for line in node.process.log().splitlines() if "tracing is off" in line]
    assert line["hint"] == "pip install 'routerd-eventd[otel]', or unset OTEL_EXPORTER_OTLP_ENDPOINT"
    node.apply(group("a", name="mesh"))
    emit(node, "wg0")
    assert collector.requests == 0


def metrics(node: NodeProcess, accept: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{node.process.port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


def chain(*nodes: NodeProcess) -> None:
    """Let each node forward to the next."""
    for node in nodes:
        neighbours = [other for other in nodes if abs(nodes.index(other) - nodes.index(node)) == 1]
        peers = [peer(other.name, other.port, group="mesh", relay=True) for other in neighbours]
        node.apply(group(node.name, name="mesh", port=node.port, secret=node.secret), *peers)
        node.wait_listening()


def count_of(node: NodeProcess) -> int:
    return int(node.ask("GET", "/status")["groups"][0]["events"])
