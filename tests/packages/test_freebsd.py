"""The service of FreeBSD: sh and shellcheck accept it, and it runs nodes under stand-ins for rc.subr and daemon(8).

FreeBSD itself is not here. What the stand-ins do is what their manual pages say of the options that the service uses.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.fork_server import shell_files
from tests.support.installed_programs import write_programs
from tests.support.source import ROOT
from tests.support.waiting import wait_for

SERVICE = ROOT / "deploy" / "freebsd" / "routerd_eventd"
RC_SUBR = """
load_rc_config() { . "$RC_CONF"; }
err() { shift; echo "$*" >&2; exit 1; }
run_rc_command() {
    case "$1" in
    start)
        for file in $required_files; do [ -r "$file" ] || err 1 "$file is not readable"; done
        "$start_precmd" || exit 1
        eval "exec env \\$${name}_env $command $command_args" ;;
    stop) kill -TERM "$(cat "$pidfile")" ;;
    status) [ -s "$pidfile" ] && kill -0 "$(cat "$pidfile")" ;;
    *) case " $extra_commands " in *" $1 "*) eval "\\$${1}_cmd" ;; *) err 1 "unknown command $1" ;; esac ;;
    esac
}
"""
DAEMON = """#!/bin/sh
while getopts SrfT:P:p:R:u: option; do
    case "$option" in P) supervisor=$OPTARG ;; p) node=$OPTARG ;; esac
done
shift $((OPTIND - 1))
supervise() {
    "$@" & child=$!
    trap 'kill -TERM $child' TERM
    echo $child >"$node"
    while kill -0 $child 2>/dev/null; do wait $child; done
    rm -f "$node" "$supervisor"
}
(supervise "$@") >>"$DAEMON_LOG" 2>&1 </dev/null &
echo $! >"$supervisor"
"""


@dataclass(frozen=True)
class Service:
    """A copy of the service that uses the stand-ins, and the folder of everything."""

    folder: Path

    def __call__(self, *words: str, configuration: str = "") -> subprocess.CompletedProcess[str]:
        folder = self.folder
        conf = {
            "program": folder / "routerd-eventd",
            "runas": getpass.getuser(),
            "data": folder / "data",
            "run": folder / "run",
            "script": folder / "routerd_eventd",
        }
        lines = [f'routerd_eventd_{name}="{value}"' for name, value in conf.items()]
        (folder / "rc.conf").write_text("\n".join([*lines, configuration, ""]))
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "RC_CONF": str(folder / "rc.conf"),
            "DAEMON_LOG": str(folder / "log"),
            "PYTHONPATH": str(ROOT),
        }
        command = [str(folder / "routerd_eventd"), *words]
        options = {"env": environment, "cwd": folder, "pass_fds": shell_files()}
        return subprocess.run(command, capture_output=True, text=True, **options)

    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    text = SERVICE.read_text().replace("/etc/rc.subr", str(tmp_path / "rc.subr"))
    programs = {
        "routerd_eventd": text.replace("/usr/sbin/daemon", str(tmp_path / "daemon")),
        "rc.subr": RC_SUBR,
        "daemon": DAEMON,
        "su": '#!/bin/sh\nexec sh -c "$4"\n',
    }
    write_programs(tmp_path)
    for name, content in programs.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    yield Service(tmp_path)
    for file in (tmp_path / "run").glob("supervisor*.pid"):
        subprocess.run(["kill", "-TERM", file.read_text().strip()], check=False)
    wait_for(lambda: not list((tmp_path / "run").glob("*.pid")), "the nodes to end")


def test_a_shell_can_read_it() -> None:
    subprocess.run(["sh", "-n", SERVICE], check=True)
    assert os.access(SERVICE, os.X_OK)


@pytest.mark.shellcheck
def test_shellcheck_has_no_remark() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (Debian: apt-get install shellcheck)")
    done = subprocess.run(["shellcheck", "--shell=sh", SERVICE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_node_is_started_reloaded_and_stopped(service: Service) -> None:
    keys = service.folder / "keys"
    keys.write_text("a-key-of-the-operator\n")
    settings = f'routerd_eventd_env="EVENTD_API_LISTEN=127.0.0.1:0 EVENTD_API_KEYS_FILE={keys}"'
    started = service("start", configuration=settings)
    assert started.returncode == 0, started.stderr
    wait_for(lambda: '"ready"' in service.log(), "the node to be ready")
    assert service("status", configuration=settings).returncode == 0
    assert (service.folder / "data" / "eventd.db").exists()
    keys.unlink()  # a reload that works logs nothing
    assert service("reload", configuration=settings).returncode == 0
    wait_for(lambda: str(keys) in service.log(), "the node to miss the file that it reads again")
    assert service("stop", configuration=settings).returncode == 0
    wait_for(lambda: not list((service.folder / "run").glob("*.pid")), "the node to end")
    assert '"stopped"' in service.log()
    assert service("status", configuration=settings).returncode != 0
    refused = service("reload", configuration=settings)
    assert (refused.returncode, refused.stderr) == (1, "routerd_eventd is not running\n")


def test_configtest_says_whether_a_node_would_start(service: Service) -> None:
    good = service("configtest")
    assert (good.returncode, f"{service.folder}/data" in good.stdout) == (0, True), good.stderr
    bad = service("configtest", configuration='routerd_eventd_env="EVENTD_DRAIN_TIMEOUT=soon"')
    assert (bad.returncode, "'soon' is not a duration" in bad.stdout) == (4, True)


def test_each_instance_has_a_folder_and_variables_of_its_own(service: Service) -> None:
    settings = 'routerd_eventd_instances="edge lab-2"\nrouterd_eventd_lab_2_env="EVENTD_LOG_LEVEL=error"'
    tried = service("configtest", "lab-2", configuration=settings)
    rows = {
        line.split()[0]: line.split()[1] for line in tried.stdout.splitlines() if line.startswith(("group", "log_"))
    }
    assert (rows["group"], rows["log_level"]) == ("lab-2", "error"), tried.stdout
    both = service("configtest", configuration=settings)
    assert [f"{service.folder}/data/{name}" in both.stdout for name in ("edge", "lab-2")] == [True, True]
    refused = service("start", "elsewhere", configuration=settings)
    assert (refused.returncode, "no instance is called elsewhere" in refused.stderr) == (1, True)


def test_a_program_that_is_missing_is_named(service: Service) -> None:
    (service.folder / "routerd-eventd").unlink()
    refused = service("start")
    assert (refused.returncode, "routerd-eventd is not readable" in refused.stderr) == (1, True)
