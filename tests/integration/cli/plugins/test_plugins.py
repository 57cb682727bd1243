"""`routerctl plugin`: a plugin is scaffolded, checked, applied, run by hand, and its runs are listed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.cli.plugins.plugins import RUN_STATUSES
from eventd.runtime.clock import SystemClock
from eventd.store.rows.runs import RunStatus
from tests.integration.cli.conftest import Api, Control
from tests.support.child_processes import is_running
from tests.support.fresh import make_current
from tests.support.plugins import write_package, write_program, write_script
from tests.support.processes import CONTROL, Processes
from tests.support.source import ROOT
from tests.support.waiting import wait_for

ANSWERS = """
import json, sys
spec = json.load(sys.stdin)["spec"]
print(json.dumps({**spec, "events": len(spec.get("events", []))}), file=sys.stderr)
resources = [
    {"apiVersion": "n.example/v1", "kind": "Claim", "metadata": {"name": event["id"]}, "spec": {}}
    for event in spec.get("events", [{"id": "by-hand"}])
]
plan = {"name": "assign", "provider": "oci", "action": "ensure-forwarding-enabled"}
status = {"ttl": "10m", "observedAt": "2026-05-30T12:00:05Z", "resources": resources, "actionPlans": [plan]}
print(json.dumps({"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult", "status": status}))
"""
SECRETIVE = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: edge}
spec: {nodeName: onprem, auth: {secretFile: /very/secret/path}}
"""


@pytest.fixture(autouse=True)
def _database(control: Control) -> None:
    folder = control.folder / "eventd-data"
    folder.mkdir(mode=0o700)
    make_current(f"sqlite:///{folder / 'eventd.db'}", now=SystemClock().now())


def declare(control: Control, path: str, more: str = "") -> None:
    text = f"""
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {{name: claims}}
spec:
  executable: {path}
  capabilities: [propose.dynamicConfig, propose.providerAction]
  triggers:
    - {{type: interval, every: 5m}}
    - {{type: event, topic: routerd.federation.subscription/claims}}
  context:
    resources:
      - {{apiVersion: federation.routerd.net/v1alpha1, kind: EventGroup, name: edge}}
{more}"""
    control("apply", "-f", control.file(f"{SECRETIVE}---{text}", "plugin.yaml"))


@pytest.fixture(params=["database", "server"])
def somewhere(request: pytest.FixtureRequest, control: Control) -> Iterator[list[str]]:
    """The options that lead to the node: its database, or its API."""
    if request.param == "database":
        yield []
        return
    control("apply", "-f", control.file(SECRETIVE))
    with Api(f"sqlite:///{control.folder}/eventd-data/eventd.db") as api:
        yield ["--server", api.url]


def test_plugins_are_listed(control: Control, tmp_path: Path) -> None:
    declare(control, write_program(tmp_path, ANSWERS))
    listed = control("plugin", "list")
    assert listed.lines[0].split() == ["NAME", "EXECUTABLE", "CAPABILITIES", "TRIGGERS"]
    assert listed.lines[1].split() == [
        "claims",
        f"{tmp_path}/plugin",
        "propose.dynamicConfig,propose.providerAction",
        "interval:5m0s,event:routerd.federation.subscription/claims",
    ]
    [row] = control("plugin", "list", "-o", "json").json
    assert set(row) == {"name", "executable", "entryPoint", "capabilities", "triggers"}


def test_without_plugins_the_list_is_empty(control: Control) -> None:
    control.edge()
    assert control("plugin", "list", "-o", "json").json == []


def test_a_plugin_is_run_by_hand_and_its_part_is_stored(control: Control, somewhere: list[str], tmp_path: Path) -> None:
    declare(control, write_program(tmp_path, ANSWERS))
    done = control("plugin", "run", "claims", *somewhere)
    assert [line.split(":", 1)[0].strip() for line in done.lines] == [
        *("Plugin", "Mode", "Source", "Generation", "Observed At", "Expires", "Digest", "Resources"),
        *("n.example/v1/Claim/by-hand", "Directives", "Action Plans", "Events"),
    ]
    assert "Mode:         stored" in done.lines
    assert "Source:       Plugin/claims" in done.lines
    assert "Expires:      2026-05-30T12:10:05Z" in done.lines
    assert "Action Plans: 1 (display-only)" in done.lines
    again = control("plugin", "run", "claims", "-o", "json", *somewhere).json
    assert (again["part"]["spec"]["generation"], again["stored"], again["dryRun"]) == (2, True, False)
    assert again["part"]["metadata"]["name"] == "Plugin-claims-2"
    assert again["summary"] == {
        "resources": 1,
        "directives": 0,
        "actionPlans": 1,
        "events": 0,
        "actionPlansDisplayOnly": True,
    }
    given = json.loads(again["outcome"]["stderr"])
    assert given["trigger"] == {"type": "manual", "topic": ""}
    assert given["previousDynamicGeneration"] == 1
    assert len(given["startupConfigHash"]) == 64
    assert given["events"] == 0


def test_a_run_by_hand_is_shown_the_context_without_secrets(control: Control, tmp_path: Path) -> None:
    declare(control, write_program(tmp_path, ANSWERS))
    answer = control("plugin", "run", "claims", "--dry-run", "-o", "json")
    [shown] = json.loads(answer.json["outcome"]["stderr"])["context"]["resources"]
    assert (shown["kind"], shown["name"], shown["spec"]["nodeName"]) == ("EventGroup", "edge", "onprem")
    assert "secret" not in answer.out


def test_a_dry_run_leaves_no_trace(control: Control, tmp_path: Path) -> None:
    declare(control, write_program(tmp_path, ANSWERS))
    done = control("plugin", "run", "claims", "--dry-run")
    assert "Mode:         dry-run" in done.lines
    assert "Generation:   1" in done.lines
    assert control("plugin", "runs", "-o", "json").json == []
    assert control("dynamic", "list", "-o", "json").json == []


def test_a_plugin_that_fails_says_why_and_is_in_the_books(
    control: Control, somewhere: list[str], tmp_path: Path
) -> None:
    declare(control, write_script(tmp_path, "#!/bin/sh\necho no route to provider >&2\nexit 42\n"))
    failed = control("plugin", "run", "claims", *somewhere, code=1)
    assert failed.out == ""
    assert "plugin: no route to provider" in failed.err
    assert failed.err.endswith("error: the plugin exited with status 42\n")
    runs = control("plugin", "runs", "claims", *somewhere)
    assert runs.lines[0].split() == [
        *("RUN", "PLUGIN", "TRIGGER", "STATUS", "EVENTS", "ATTEMPT", "STARTED", "COMPLETED", "ERROR")
    ]
    [run] = control("plugin", "runs", "--status", "failed", "-o", "json", *somewhere).json
    assert (run["plugin"], run["trigger"], run["status"], run["exitCode"]) == ("claims", "manual", "failed", 42)
    assert run["stderr"] == "no route to provider\n"
    assert control("plugin", "runs", "--status", "succeeded", "-o", "json").json == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_by_hand_that_is_told_to_stop_ends_its_program_and_says_so(
    control: Control, processes: Processes, tmp_path: Path, number: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    path = write_script(tmp_path, f"#!/bin/sh\necho $$ >{begun}\nexec sleep 3600\n")
    declare(control, path, more="  timeout: 2h\n")
    here = {"EVENTD_DATA_DIR": str(control.folder / "eventd-data")}
    running = processes.start("run", [*CONTROL, "plugin", "run", "claims"], env=here)
    wait_for(lambda: begun.exists() and begun.read_text().endswith("\n"), "the program to run")
    running.send(number)
    assert running.wait_exit() == 128 + number
    wait_for(lambda: not is_running(int(begun.read_text())), "the program to be ended")
    (run,) = json.loads(control("plugin", "runs", "-o", "json").out)
    assert run["status"] == "interrupted"


def test_what_a_run_said_is_shown_whole(control: Control, somewhere: list[str], tmp_path: Path) -> None:
    declare(control, write_script(tmp_path, "#!/bin/sh\nprintf 'first\\n\\033[31mlast\\n' >&2\nexit 42\n"))
    control("plugin", "run", "claims", *somewhere, code=1)
    write_program(tmp_path, "".join(ANSWERS.splitlines(keepends=True)[:3] + ANSWERS.splitlines(keepends=True)[4:]))
    control("plugin", "run", "claims", *somewhere)
    log = control("plugin", "logs", "claims", *somewhere).lines
    assert log[0] == "Run:        1 of claims, manual"
    assert log[2:4] == ["Status:     failed, attempt 1, 0 events", "Exit Code:  42"]
    assert log[4] == "Error:      the plugin exited with status 42"
    assert log[5:] == ["", "first", "\\x1b[31mlast"]
    assert control("plugin", "logs", "--run", "2", *somewhere).lines[2] == "Status:     succeeded, attempt 1, 0 events"
    assert control("plugin", "logs", "claims", "-o", "json", *somewhere).json["id"] == 1
    gone = control("plugin", "logs", "claims", "--run", "9", *somewhere, code=3)
    assert gone.err == "error: no run 9 of claims is kept (`routerctl plugin runs` lists the runs)\n"
    assert "name the plugin, the run, or both" in control("plugin", "logs", *somewhere, code=2).err


def test_wide_shows_errors_whole(control: Control, tmp_path: Path) -> None:
    declare(control, write_script(tmp_path, f"#!/{'very/' * 20}long\n"))
    control("plugin", "run", "claims", code=1)
    [run] = control("plugin", "runs", "-o", "json").json
    assert control("plugin", "runs").lines[1].endswith(f"{run['error'][:57]}...")
    assert run["error"] in control("plugin", "runs", "-o", "wide").lines[1]


def test_the_help_names_every_outcome_of_a_run() -> None:
    assert list(RUN_STATUSES) == [str(status) for status in RunStatus]


def test_runs_of_a_name_nobody_declared_say_so(control: Control, tmp_path: Path) -> None:
    declare(control, f"{tmp_path}/gone")
    assert control("plugin", "runs", "claim").err == "note: Plugin claim is not declared (declared: claims)\n"
    assert control("plugin", "runs", "claims").err == ""


def test_a_plugin_that_is_missing_is_no_fault_of_the_node(control: Control, tmp_path: Path) -> None:
    declare(control, f"{tmp_path}/gone")
    failed = control("plugin", "run", "claims", code=1)
    assert f"error: the plugin {tmp_path}/gone does not exist" in failed.err
    [run] = control("plugin", "runs", "-o", "json").json
    assert run["status"] == "blocked"


def test_runs_come_in_pages(control: Control, tmp_path: Path) -> None:
    declare(control, write_program(tmp_path, ANSWERS))
    for _ in range(3):
        control("plugin", "run", "claims")
    first = control("plugin", "runs", "--limit", "2", "-o", "name")
    assert first.lines == ["3", "2"]
    assert first.err == "note: there are more runs: continue with --before 2\n"
    last = control("plugin", "runs", "--before", "2", "-o", "name")
    assert (last.lines, last.err) == (["1"], "")


def test_a_plugin_nobody_has_declared(control: Control, tmp_path: Path) -> None:
    declare(control, write_program(tmp_path, ANSWERS))
    for command in ("run", "check"):
        missing = control("plugin", command, "claim", code=3)
        assert missing.err == "error: no plugin 'claim' is declared (declared: claims)\n"


# --- check --------------------------------------------------------------------------------------------------------


def test_a_good_plugin_keeps_the_contract(control: Control, somewhere: list[str], tmp_path: Path) -> None:
    declare(control, write_program(tmp_path, ANSWERS))
    checked = control("plugin", "check", "claims", "-o", "json", *somewhere).json
    verdicts = {row["check"]: row["verdict"] for row in checked}
    assert verdicts == dict.fromkeys(verdicts, "ok")
    assert len(verdicts) == 16
    assert control("plugin", "runs", "-o", "json").json == []


FLAWS = {
    "assert len(events) < 1000": {"1024 events": "exited with status 1"},
    "assert not set(spec) - {'trigger', 'startupConfigHash', 'effectiveGeneration', 'previousDynamicGeneration', 'now',"
    " 'events', 'context'}": {"unknown members": "exited with status 1"},
    "one = lambda e: {'apiVersion': 'n.example/v1', 'kind': 'K', 'metadata': {'name': e['subject']},"
    " 'spec': e['payload']}\nif len(events) == 2: resources = [one(e) for e in events]": {
        "two events about one thing": "with other content"
    },
    "[event['payload'] for event in events]": {"an event without details": "KeyError: 'payload'"},
    "name = events[0]['subject'] if events else 'none'": {"any characters": "metadata.name must be"},
    "spec['events']": {"no events": "KeyError: 'events'"},
}
"""What a plugin does wrong, and the checks that find it with their reasons: each fault shows in its own request."""
OTHER_FLAWS = {
    "import random\nname = str(random.random())": {"the same twice": "resources differ"},
    "import time\ntime.sleep(2.1 if len(events) == 1024 else 0)": {"well within its time limit": "more than half"},
    "edge = {'apiVersion': 'federation.routerd.net/v1alpha1', 'kind': 'EventGroup', 'metadata': {'name': 'edge'}}\n"
    "if len(events) == 1: resources = [{**edge, 'spec': {'nodeName': 'x'}}]": {
        "does not redefine declared resources": "EventGroup/edge, which is declared"
    },
}
CHECKED = """
import json, sys
spec = json.load(sys.stdin)["spec"]
events = spec.get("events", [])
name, resources = "fixed", []
{flaw}
one = {{"apiVersion": "n.example/v1", "kind": "K", "metadata": {{"name": name}}, "spec": {{}}}}
status = {{"ttl": "10m", "resources": resources or [one]}}
print(json.dumps({{"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult", "status": status}}))
"""


@pytest.mark.parametrize("flaws", [FLAWS, OTHER_FLAWS], ids=["by request", "by result"])
def test_a_plugin_that_breaks_the_contract_is_found_out(
    control: Control, tmp_path: Path, flaws: dict[str, dict[str, str]]
) -> None:
    declare(control, write_program(tmp_path, CHECKED.format(flaw="\n".join(flaws))), more="  timeout: 4s\n")
    found = control("plugin", "check", "claims", "-o", "json", code=4)
    failed = {row["check"]: row["reason"] for row in found.json if row["verdict"] == "failed"}
    expected = {check: reason for reasons in flaws.values() for check, reason in reasons.items()}
    assert failed.keys() == expected.keys()
    assert not [failed[check] for check, reason in expected.items() if reason not in failed[check]]
    assert "the plugin breaks the contract" in found.err


def test_a_program_that_takes_garbage_for_a_request_is_found_out(control: Control, tmp_path: Path) -> None:
    head = '{"apiVersion":"plugin.routerd.net/v1alpha1","kind":"PluginResult","status":{"ttl":"1m","resources":[]}}'
    path = write_script(tmp_path, f"#!/bin/sh\ncat >/dev/null\necho '{head}'\n")
    found = control("plugin", "check", "--executable", path, "-o", "json", code=4)
    failed = [row["check"] for row in found.json if row["verdict"] == "failed"]
    assert failed == ["nothing to read", "garbage to read"]


def test_an_entry_point_is_checked_with_events_of_a_type(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    from eventd.plugins import Resource
    def plugin(event):
        if event.type == "client.seen":
            yield Resource("a/v1", "K", "k")
    """
    monkeypatch.syspath_prepend(write_package(tmp_path, body)[0][1])
    checked = control("plugin", "check", "--entry-point", "sample", "--type", "client.seen", "-o", "json")
    assert checked.json[1]["reason"] == "1 resource"


def test_what_a_plugin_wrote_when_a_check_failed_is_shown_once(control: Control, tmp_path: Path) -> None:
    path = write_script(tmp_path, "#!/bin/sh\necho no route >&2\nexit 3\n")
    found = control("plugin", "check", "--executable", path, code=4)
    assert found.lines[0].split() == ["CHECK", "VERDICT", "TOOK", "REASON"]
    assert found.lines[1].endswith("the plugin exited with status 3; its last output: no route")
    (proposes,) = [line for line in found.lines if line.startswith("proposes something")]
    assert "skipped" in proposes
    assert proposes.endswith("name it with --type")
    assert found.err.splitlines()[0] == "plugin: no route"
    assert found.err.count("no route") == 1


def test_one_thing_is_checked_at_a_time(control: Control) -> None:
    for arguments in ([], ["claims", "--executable", "/x"], ["--executable", "/x", "--entry-point", "y"]):
        assert "name what to check" in control("plugin", "check", *arguments, code=2).err


# --- init ---------------------------------------------------------------------------------------------------------


def test_a_plugin_that_was_begun_works_as_it_is(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = control("plugin", "init", "my-claims")
    assert begun.lines == [
        *("my-claims/pyproject.toml created", "my-claims/my_claims/__init__.py created"),
        *("my-claims/tests/test_plugin.py created", "my-claims/plugin.yaml created", "my-claims/README.md created"),
    ]
    control.edge()
    assert "plugin/my-claims created" in control("apply", "-f", "my-claims/plugin.yaml").lines
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    env = {"PYTHONPATH": f"{ROOT}:.", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(tests, cwd="my-claims", env=env, capture_output=True, text=True)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_script_that_was_begun_works_as_it_is(control: Control) -> None:
    if shutil.which("jq") is None:
        pytest.skip("the script needs jq")
    control("plugin", "init", "my-claims", "--shell")
    control.edge()
    control("apply", "-f", "my-claims/plugin.yaml")
    checked = control("plugin", "check", "my-claims", "-o", "json").json
    verdicts = {row["check"]: row["verdict"] for row in checked}
    assert verdicts.pop("does not redefine declared resources") == "skipped"
    assert verdicts == dict.fromkeys(verdicts, "ok")


def test_nothing_is_overwritten_and_names_are_those_of_packages(control: Control, tmp_path: Path) -> None:
    control("plugin", "init", "claims", "--directory", "here")
    again = control("plugin", "init", "claims", "--directory", "here", code=1)
    assert again.err == "error: here exists and is not an empty folder (name another folder with --directory)\n"
    wrong = control("plugin", "init", "My_Claims", code=1)
    assert (
        "'My_Claims' cannot be the name of a plugin (use at most 63 of a-z, 0-9 and single dashes; begin with a letter)"
        in wrong.err
    )
