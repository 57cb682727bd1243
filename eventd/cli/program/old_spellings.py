"""Spellings of commands, options and values that the help no longer shows. These tables are the only lists of them.

Scripts use them, so each works as before and prints one notice on stderr (a synonym prints none). Spellings that can
no longer work are refused with a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

RENAMED_OPTIONS: Final = {"--database-url": "--database"}
RENAMED_OPTIONS_OF: Final[Mapping[str, Mapping[str, str]]] = {"audit verify-report": {"--keys": "--auditor-keys"}}
"""Renamed options of single commands. Other commands still have options of the old name."""
RENAMED_COMMANDS: Final = {"federation peers": "federation links"}

SPARK_SIZES: Final = {"audit run": "--memory", "audit stream": "--memory"}
"""Options whose value may be a size in the notation of Spark, such as `2g`."""
_SPARK_SIZE: Final = re.compile(r"([0-9]{1,9})([kmgt]b?|[KMGT])")

SYNONYMS: Final = {"fed": "federation", "federation subscription": "subscription"}
"""Documented second names of groups of commands, which print no notice. A longer synonym is applied to the result of a
shorter one."""

_KEY = ("--key", "--key-file")
_NODE = ("--server", *_KEY, "--database", "--data-dir", "--state-file")
_HEADERS = ("--no-headers",)
_NO_TABLE = (
    *("apply", "diff", "delete", "key create", "key revoke"),
    *(
        "federation redeliver",
        "federation event prune",
        "federation dead-letters retry",
        "federation dead-letters drop",
    ),
    *("subscription retry", "subscription reset", "plugin run", "plugin logs"),
    *("dynamic describe", "dynamic render", "dynamic diff", "dynamic delete"),
    *("topic put", "topic set", "topic describe", "topic delete", "topic write", "topic purge"),
    *("router put", "router delete"),
)
_SETTINGS_OF_A_NODE = (
    *("--api-listen", "--port-file", "--api-keys-file", "--allow-insecure-no-auth", "--allow-debugger", "--group"),
    *("--workers", "--standby", "--log-format", "--log-level", "--drain-timeout", "--prune-interval"),
    *("--batch-retention", "--dead-letter-retention", "--run-retention", "--part-retention"),
    *("--lake", "--lake-interval", "--lake-rows", "--lake-payloads", "--lake-compact-after", "--lake-retention"),
    *("--lake-nice", "--max-body-bytes", "--max-connections", "--max-outbox-bytes", "--max-topics", "--max-routers"),
    *("--max-total-bytes", "--max-watch-sessions", "--max-sse-connections", "--max-sse-connections-per-key"),
    *("--max-inflight-per-key", "--probe-auth"),
)
"""Frozen: what scripts could pass to `migrate` before. A newer setting is not added, so nothing derives this list."""
UNUSED_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_NO_TABLE, _HEADERS),
    **dict.fromkeys(("plugin init", "audit run", "audit generate"), (*_NODE, *_HEADERS)),
    **dict.fromkeys(("audit stream", "lake check", "lake compact", "lake retain", "lake close"), _NODE),
    **dict.fromkeys(("bench fanout", "bench subscriptions", "db backup"), _KEY),
    "db restore": (*_KEY, *_HEADERS),
    "migrate": _SETTINGS_OF_A_NODE,
}
"""Shared options that these commands of `routerctl`, and `routerd-eventd migrate`, accept and ignore."""

_REMOVED = "the option was removed: leave it out"
_OWN_NODES = "the command measures nodes of its own: leave it out"
_OF_GENERATE = (
    *("--processes", "--peers", "--groups", "--types", "--start", "--segment-rows", "--disagree", "--corrupt"),
    *("--epoch", "--expire", "--dead-letter", "--retry", "--pending", "--silent", "--in-path", "--selectors"),
    "--payloads",
)
REFUSED_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "audit generate": dict.fromkeys(_OF_GENERATE, _REMOVED),
    "bench fanout": dict.fromkeys(("--server", "--database"), _OWN_NODES),
    "bench subscriptions": {"--server": _OWN_NODES},
}
"""Options of `routerctl` commands that are refused because they would change what the command does, each with a
remedy."""


def command_of(path: str) -> str:
    """Return a command's path without the program's name, such as `federation links`, with synonyms replaced."""
    command = path.partition(" ")[2]
    for short, name in SYNONYMS.items():
        if f"{command} ".startswith(f"{short} "):
            command = f"{name}{command.removeprefix(short)}"
    return command


def renamed_command(path: str) -> tuple[str, str] | None:
    """Return the old and the present name of a command that is called by its old name; None for any other."""
    old = command_of(path)
    return (old, RENAMED_COMMANDS[old]) if old in RENAMED_COMMANDS else None


def renamed_options(path: str) -> Mapping[str, str]:
    """Return the present names of options by their old ones, as far as this command has the present ones."""
    return {**RENAMED_OPTIONS, **RENAMED_OPTIONS_OF.get(command_of(path), {})}


def renamed_value(path: str, option: str, value: str) -> str:
    """Return the present spelling of an option's value; the same value if it is not an old one."""
    found = _SPARK_SIZE.fullmatch(value) if SPARK_SIZES.get(command_of(path)) == option else None
    return f"{found[1]}{found[2][0].upper()}iB" if found else value


def unused_options(path: str) -> tuple[str, ...]:
    """Return the options that this command accepts and ignores."""
    unused = UNUSED_OPTIONS.get(command_of(path), ())
    return (*unused, *(old for old, name in RENAMED_OPTIONS.items() if name in unused))


def remedy(path: str, option: str) -> str:
    """Return the remedy for an option that this command refuses; empty for any other option."""
    return REFUSED_OPTIONS.get(command_of(path), {}).get(option, "")
