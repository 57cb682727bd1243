"""`make release-database`: a database as this version leaves it, for the tests of all later ones.

It is made by the commands of an operator, and holds a little of what nodes hold: resources, events, topics, a router,
a key.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path

from deploy.release.source import ROOT, BuildFailed, run, run_program, version

FOLDER = ROOT / "tests" / "vectors" / "databases"
RESOURCES = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: edge}
spec: {nodeName: onprem, auth: {secretFile: /nowhere/secret}}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventPeer
metadata: {name: cloud}
spec: {groupRef: edge, nodeName: cloud, endpoint: "http://127.0.0.1:1"}
"""
SUBJECTS = ("10.0.0.1/32", "10.0.0.2/32")
RECORDS = ("{}", '{"item": "bolt"}', '{"item": "µ"}')
STEPS = (
    ("apply", "-f", "FOLDER/resources.yaml"),
    *(("federation", "event", "emit", "--type", "seen", "--subject", subject) for subject in SUBJECTS),
    ("topic", "put", "orders"),
    ("router", "put", "orders->audit"),
    ("topic", "write", "orders", *RECORDS),
    ("key", "create", "operator"),
)
"""Commands of routerctl, in order."""
_PROGRAM = """
import json, sys
from eventd.cli.routerctl import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["routerctl", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{words} exited with status {end.code}")
"""
"""Runs all of them in one process: to start one takes longer than a command."""


def file_of(number: str) -> Path:
    """Return the file of the database of a version."""
    return FOLDER / f"{number}.db.gz"


def make_database(target: Path) -> Path:
    """Make the database, and write it compressed; return the file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "resources.yaml").write_text(RESOURCES)
        environment = {**os.environ, "EVENTD_DATA_DIR": f"{folder}/node"}
        steps = [[word.replace("FOLDER", folder) for word in step] for step in STEPS]
        run([sys.executable, "-c", _PROGRAM, json.dumps(steps)], cwd=ROOT, env=environment)
        database = sqlite3.connect(f"{folder}/node/eventd.db")
        database.execute("PRAGMA journal_mode=DELETE")
        database.execute("VACUUM")
        database.close()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(Path(folder, "node", "eventd.db").read_bytes(), 9, mtime=0))
    return target


def main() -> None:
    """Write the file of this version, unless it is there: what was released does not change."""
    target = file_of(version())
    if target.exists():
        raise BuildFailed(f"{target} exists, and is of the version that was released")
    print(f"{make_database(target)}  {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    run_program(main)
