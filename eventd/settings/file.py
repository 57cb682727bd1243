"""Reads the settings file, in TOML or YAML, with the line of every key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from eventd.settings.model import Settings
from eventd.settings.problems import SettingProblem
from eventd.settings.values import read_bounded
from eventd.text.did_you_mean import did_you_mean

SIMILAR: Final = 0.75
"""How similar to a setting a wrong name must be to be taken for it; see `did_you_mean`."""
_MOST_LEVELS = 20
"""Levels of a settings file in YAML; settings need two."""


def read_file(path: Path, problems: list[SettingProblem]) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Yield the name of each setting in a file, with its value and origin; add to `problems`."""
    try:
        text = read_bounded(path)
        content = tomllib.loads(text) if path.suffix == ".toml" else _yaml(path, text)
    except OSError as error:
        problems.append(SettingProblem(str(path), f"cannot be read: {error.strerror}"))
        return
    except ValueError as error:  # also what tomllib raises
        problems.append(SettingProblem(str(path), str(error)))
        return
    except RecursionError:
        problems.append(SettingProblem(str(path), f"is nested more than {_MOST_LEVELS} levels deep: settings need two"))
        return
    fields = [name for name in Settings.model_fields if name != "credentials_directory"]
    for key, value in content.items():
        origin = f"{path}{_line_of(str(key), text)}: {key}"
        if key in fields:
            yield key, (value, origin)
        else:
            meant = did_you_mean(str(key), fields, SIMILAR)
            problems.append(SettingProblem(origin, f"there is no such setting{f' ({meant})' if meant else ''}"))


def _line_of(key: str, text: str) -> str:
    """Return `:LINE` of a key in a settings file; empty if it is written in an unusual form."""
    found = re.search(rf"""^\[?["']?{re.escape(key)}["']?[ \t]*[]:=]""", text, re.MULTILINE)
    return f":{text.count(chr(10), 0, found.start()) + 1}" if found else ""


def _yaml(path: Path, text: str) -> dict[Any, Any]:
    if path.suffix not in (".yaml", ".yml"):
        raise ValueError("must end in .toml, .yaml or .yml, which names its format")
    import yaml  # slow to load, and most nodes have no such file

    is_deep = False
    try:
        depth = 0
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if is_deep := depth > _MOST_LEVELS:
                break  # the loader would take time that grows with the square of the depth
        content = {} if is_deep else yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        last = text.rstrip("\n").count("\n")  # the C parser finds the end of a text behind its last line
        raise ValueError(f"is not valid YAML{f' on line {min(mark.line, last) + 1}' if mark else ''}") from None
    except (AttributeError, LookupError, ValueError):  # raised by the library, for example for `!!timestamp soon`
        raise ValueError(
            "is not valid YAML: a value is an impossible date, or not of the type that its tag names"
        ) from None
    if is_deep:
        raise ValueError(f"is nested more than {_MOST_LEVELS} levels deep: settings need two")
    if content is not None and not isinstance(content, dict):
        raise ValueError("must hold one setting per line, as `name: value`")
    return content or {}
