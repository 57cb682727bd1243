"""Creates a plugin to start from: a folder that works unchanged, with a test, and the resources to apply."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Final

from eventd.errors import Conflict, Invalid

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_NAME_RULE: Final = "use at most 63 of a-z, 0-9 and single dashes; begin with a letter"
_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "A plugin of routerd-eventd"
requires-python = ">=3.11"
dependencies = ["routerd-eventd"]

[project.entry-points."eventd.plugins"]
$name = "$module:plugin"

[tool.hatch.build.targets.wheel]
packages = ["$module"]
"""
_MODULE: Final = '''\
"""Turns each client event into a route to the client."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from eventd.plugins import Event, Resource

GATEWAY = "10.99.0.6"


def plugin(event: Event) -> Iterator[Resource]:
    """Called once for each event. What it yields remains in effect for the Plugin's spec.ttl.

    Names come from the event alone: the same event always leads to the same resource.
    """
    try:
        host = ip_address(event.subject.partition("/")[0])
    except ValueError:
        return  # any member of the group may send any text as a subject
    yield Resource(
        api_version="net.example/v1",
        kind="IPv4Route",
        name="client-" + str(host).replace(".", "-").replace(":", "-"),
        spec={"destination": f"{host}/{host.max_prefixlen}", "gateway": GATEWAY},
    )
'''
_TEST: Final = '''\
"""The plugin is a function: tests call it."""

from __future__ import annotations

from eventd.plugins import Event
from $module import plugin

SEEN = Event(id="e1", group="edge", type="client.seen", subject="10.88.60.9/32")


def test_an_observation_becomes_a_route() -> None:
    [route] = plugin(SEEN)
    assert (route.kind, route.name) == ("IPv4Route", "client-10-88-60-9")
    assert route.spec["destination"] == "10.88.60.9/32"


def test_the_same_event_gives_the_same_route() -> None:
    assert list(plugin(SEEN)) == list(plugin(SEEN))


def test_an_event_that_is_not_about_an_address_gives_nothing() -> None:
    assert list(plugin(Event(id="e2", group="edge", type="client.seen"))) == []
    assert list(plugin(Event(id="e3", group="edge", type="client.seen", subject="the cat"))) == []
'''
_README: Final = """\
# $name

Turns each `client.seen` event of the group `edge` into an `IPv4Route`.

```sh
pip install -e .                                        # where the node runs, into its environment
python -m pytest                                        # the function alone
routerctl plugin check --entry-point $name --type client.seen
routerctl apply -f plugin.yaml                          # needs the EventGroup edge
routerctl plugin run $name --dry-run
```

Change `plugin()` in `$module/__init__.py`. It is given one event at a time because its parameter is called `event`;
call it `events` to be given a whole batch. A running node takes a new version over within ten minutes, or at once when
`RELEASE` in `plugin.yaml` is raised and applied. When a run fails, `routerctl plugin logs $name` shows what it wrote.
"""
_DECLARED: Final = """\
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {name: $name}
spec:
  $way
  timeout: 10s
$ttl  capabilities: [propose.dynamicConfig]
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventSubscription
metadata: {name: $name}
spec:
  groupRef: edge
  match: {types: [client.seen]}
  trigger: {pluginRef: $name, batchWindow: 200ms}
"""
_KEPT_WARM: Final = """\
  ttl: 10m
  env: {RELEASE: "1"}  # raise it with each version: then a running node takes the new one at once
"""
_SHELL: Final = r"""#!/bin/sh
# Turns each client event into a route to the client. Reads one PluginRequest, writes one PluginResult.
# Standard error is stored with the run; an exit status other than 0 means that the run has failed.
set -eu

exec jq '{
  apiVersion: "plugin.routerd.net/v1alpha1",
  kind: "PluginResult",
  status: {
    ttl: "10m",
    resources: [
      .spec.events[]?
      | (.subject // "" | split("/")[0] // "") as $$host
      | select($$host | test("^[0-9]+(\\.[0-9]+){3}$$"))  # any member of the group may send any text as a subject
      | {
          apiVersion: "net.example/v1",
          kind: "IPv4Route",
          metadata: {
            name: ("client-" + ($$host | gsub("\\."; "-"))),
            annotations: {"routerd.net/for-subject": .subject}
          },
          spec: {destination: ($$host + "/32"), gateway: "10.99.0.6"}
        }
    ]
  }
}'
"""
_SHELL_README: Final = """\
# $name

A program that turns each `client.seen` event of the group `edge` into an `IPv4Route`. It needs `jq`.

```sh
./$file < request.json                                  # by hand
sh test.sh                                              # its test
routerctl plugin check --executable "$$PWD/$file" --type client.seen
routerctl apply -f plugin.yaml                          # needs the EventGroup edge
routerctl plugin run $name --dry-run
```

A node starts it with one PluginRequest on its standard input and reads one PluginResult, JSON or YAML, from its
standard output.
"""
_SHELL_TEST: Final = """#!/bin/sh
# The plugin is a program: its test runs it.
set -eu
cd "$$(dirname "$$0")"
name=$$(./$file < request.json | jq -r '.status.resources[0].metadata.name')
test "$$name" = client-10-88-60-9 || { echo "got $$name"; exit 1; }
echo ok
"""
_REQUEST: Final = """\
{
  "apiVersion": "plugin.routerd.net/v1alpha1",
  "kind": "PluginRequest",
  "metadata": {"name": "$name"},
  "spec": {
    "trigger": {"type": "federation-subscription", "topic": "routerd.federation.subscription/$name"},
    "startupConfigHash": "",
    "effectiveGeneration": 0,
    "previousDynamicGeneration": 0,
    "now": "2026-05-30T12:00:05Z",
    "events": [
      {"id": "e1", "group": "edge", "sourceNode": "onprem", "type": "client.seen", "subject": "10.88.60.9/32",
       "dedupeKey": "e1", "observedAt": "2026-05-30T12:00:00Z", "expiresAt": "0001-01-01T00:00:00Z"}
    ],
    "context": {}
  }
}
"""


def skeleton(name: str, folder: Path, *, shell: bool) -> dict[str, str]:
    """Return the texts of a new plugin's files, by path in `folder`: a Python package, or with `shell` a script.

    Raises Invalid for a name that is not valid for a plugin and its package.
    """
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > 63:
        raise Invalid(f"{name!r} cannot be the name of a plugin", hint=_NAME_RULE)
    file = f"{name}.sh"
    place = folder.absolute() / file
    way = f"executable: {place}" if shell else f"entryPoint: {name}"
    words = {"name": name, "module": module, "file": file, "way": way, "ttl": "" if shell else _KEPT_WARM}
    files = _shell_files(file) if shell else _python_files(module)
    return {path: Template(text).substitute(words) for path, text in files.items()}


def _python_files(module: str) -> dict[str, str]:
    return {
        "pyproject.toml": _PYPROJECT,
        f"{module}/__init__.py": _MODULE,
        "tests/test_plugin.py": _TEST,
        "plugin.yaml": _DECLARED,
        "README.md": _README,
    }


def _shell_files(file: str) -> dict[str, str]:
    return {
        file: _SHELL,
        "test.sh": _SHELL_TEST,
        "request.json": _REQUEST,
        "plugin.yaml": _DECLARED,
        "README.md": _SHELL_README,
    }


def write_skeleton(files: dict[str, str], folder: Path) -> None:
    """Write these files into a new or empty folder, and make scripts executable.

    Raises Conflict if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{folder} exists and is not an empty folder", hint="name another folder with --directory")
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            file.chmod(0o755)
