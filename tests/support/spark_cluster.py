"""A standalone Spark cluster on this machine: a master and workers, as processes that can be killed."""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eventd.audit.spark.java import java_home
from eventd.audit.spark.packing import environment
from tests.support.ports import free_port
from tests.support.processes import Process, Processes
from tests.support.source import ROOT
from tests.support.spark import OPTIONS, QUICK, STARTS_FAST
from tests.support.waiting import wait_for

PATIENCE = 200.0
"""Seconds to wait for each condition of a cluster: several JVMs start at the same time, on a shared machine."""
_LOST = "Telling app of lost executor"


class Cluster:
    """A master on 127.0.0.1, and its workers; `env` is the environment of every Spark program."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._workers: list[Process] = []
        self.env = {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(installed_spark()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": STARTS_FAST,
            "SPARK_LOCAL_DIRS": str(processes.directory / "scratch"),  # a killed program leaves files behind
        }
        self.address = f"spark://127.0.0.1:{(port := free_port())}"
        options = "-Dspark.master.rest.enabled=false"
        flags = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._master = self._start("master", "master.Master", flags, SPARK_MASTER_OPTS=options)
        _wait_for_line(self._master, "New state: ALIVE")

    def start_two_workers(self) -> None:
        """Start two workers with one core each; return once the master knows both."""
        flags = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        for name in ("worker-1", "worker-2"):
            folder = self._processes.directory / f"{name}-work"
            where = ["--work-dir", str(folder), self.address]
            self._workers.append(self._start(name, "worker.Worker", [*flags, *where]))
        for worker in self._workers:
            _wait_for_line(worker, "Successfully registered with master")

    def kill_a_worker_of(self, job: Process, under_way: Callable[[], Any]) -> None:
        """Wait until the job runs, then kill -9 a worker that works for it; its executor dies with it."""

        def at_work() -> Process | None:
            assert job.running, f"{job.name} has ended:\n{job.log_tail()}"
            return next(filter(_runs_python, self._workers), None) if under_way() else None

        worker, lost = (
            wait_for(at_work, f"{job.name} to be under way", seconds=PATIENCE),
            self._master.log().count(_LOST),
        )
        worker.kill9()
        worker.destroy()
        self._workers.remove(worker)
        # The master does not report a job that has ended: this line proves that the kill hit a running job.
        wait_for(lambda: self._master.log().count(_LOST) > lost, "the master to miss an executor", seconds=PATIENCE)

    def _start(self, name: str, kind: str, flags: list[str], **env: str) -> Process:
        command = [str(installed_spark() / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *flags]
        small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": STARTS_FAST}
        return self._processes.start(name, command, env={**self.env, **small, **env})


class ConnectServer:
    """A server of Spark Connect on this machine, with two cores and its own Java; `address` is that of its port."""

    def __init__(self, processes: Processes) -> None:
        port = free_port()
        self.address = f"sc://127.0.0.1:{port}"
        env = {
            **quick_spark(processes.directory),
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(installed_spark()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(processes.directory / "scratch"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }
        settings = {"grpc.binding.port": port, "grpc.binding.address": "127.0.0.1"}
        flags = [word for name, value in settings.items() for word in ("--conf", f"spark.connect.{name}={value}")]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        submit = [str(installed_spark() / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
        quiet = ["--conf", "spark.ui.enabled=false"]
        process = processes.start("connect", [*submit, *quiet, *flags, "--class", server, "spark-internal"], env=env)
        _wait_for_line(process, "Spark Connect server started")


def installed_spark() -> Path:
    """Return the Spark home."""
    import pyspark

    return Path(pyspark.__file__).parent


def quick_spark(folder: Path) -> dict[str, str]:
    """Return an environment in which each JVM of Spark starts fast; executors write temporary files to `folder`.

    Not a folder of settings, as a machine may have: it would be on the class path, to which the archive of the classes
    would not fit any more. A driver takes twice the processor time without it.
    """
    executors = f"{STARTS_FAST} -Djava.io.tmpdir={folder}"
    settings = {name: value for name, value in QUICK.items() if name != OPTIONS}
    settings["spark.executor.extraJavaOptions"] = executors
    given = [f"'-D{name}={value}'" for name, value in settings.items()]
    return {"SPARK_SUBMIT_OPTS": " ".join([STARTS_FAST, *given]), "SPARK_LAUNCHER_OPTS": STARTS_FAST}


def without_java(folder: Path) -> dict[str, str]:
    """Return an environment in which all programs are found except `java`, as on a machine without Java."""
    programs = folder / "programs"
    programs.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for entry in Path(place).iterdir() if Path(place).is_dir() else ():
            if entry.name != "java" and not (programs / entry.name).is_symlink():
                (programs / entry.name).symlink_to(entry)
    return {"PATH": str(programs), "JAVA_HOME": ""}


def link_environment(path: Path) -> None:
    """Write an environment as packing it does, but with links to the packages installed here, which takes no time."""
    places = {entry.name.split("/")[0]: entry for entry in environment()}
    with tarfile.open(path, "w:gz") as archive:
        for name, entry in places.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, str(entry.source).removesuffix(entry.name) + name
            archive.addfile(link)


def start_program(processes: Processes, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
    """Start one of `tests.support.spark_programs`."""
    command = [sys.executable, "-m", "tests.support.spark_programs", *arguments]
    here = {"PYTHONPATH": str(ROOT), "TMPDIR": str(processes.directory)}
    return processes.start(arguments[0], command, env={**here, **(env or {})})


def _runs_python(worker: Process) -> bool:
    """Return whether an executor of the worker has started Python, which it does for its first task."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            session = int(stat.read_text().rpartition(")")[2].split()[3])
            if session == worker.pid and b"pyspark.daemon" in (stat.parent / "cmdline").read_bytes():
                return True
        except OSError:  # it has exited since
            continue
    return False


def _wait_for_line(process: Process, text: str) -> None:
    def said() -> bool:
        assert process.running, f"{process.name} has ended:\n{process.log_tail()}"
        return text in process.log()

    wait_for(said, f"{process.name} to say {text!r}", seconds=PATIENCE)
