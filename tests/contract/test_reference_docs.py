"""The reference is complete: every setting, every error code, every metric has its row."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import eventd
from eventd.api.errors.codes import API_FORM, TOPICS_FORM
from eventd.audit.source.options import NAMES
from eventd.cli.program.exits import ExitCode, exit_code
from eventd.errors import EventdError, SettingsError
from eventd.observe.metrics import LABELS, Metrics
from eventd.settings.loading import load
from eventd.settings.model import Settings, flag_of, variable_of

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
RELATIVE = {"data_dir": "./eventd-data"}
"""Defaults that depend on where the node is started are documented as they are written."""
DERIVED = ("database_url",)
"""Defaults that follow from other settings; their description says how."""


def rows(page: str) -> dict[str, list[str]]:
    """The rows of all tables of a page by their first cell; cells without the marks of code."""
    lines = (REFERENCE / page).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("| `")]
    return {found[0].split("`")[1]: found for found in cells}


def bare(cell: str) -> str:
    return cell.strip("`")


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_reference(name: str) -> None:
    row = rows("settings.md")[name]
    shown = {setting.name: setting.value for setting in load({}, {}).describe()}
    default = "" if name in DERIVED else RELATIVE.get(name, shown[name])
    assert [bare(cell) for cell in row[1:4]] == [flag_of(name), variable_of(name), default]
    assert bare(row[4]) == (Settings.model_fields[name].description or "").strip("`")


def _subclasses(kind: type[EventdError]) -> Iterator[type[EventdError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _subclasses(inner)


def _declared_errors() -> list[type[EventdError]]:
    for module in pkgutil.walk_packages(eventd.__path__, "eventd."):
        if not module.name.startswith("eventd.migrations"):
            importlib.import_module(module.name)
    ours = {kind for kind in _subclasses(EventdError) if kind.__module__.startswith("eventd.")}
    found = {kind for kind in ours if not kind.__module__.startswith("eventd.client")}  # it tells what a node told it
    return sorted(found, key=lambda kind: (kind.code, kind.__name__))


def _statuses(kind: type[EventdError]) -> tuple[str, str]:
    """Return the status of its answer and the exit status."""
    error = kind.__new__(kind)
    of_topics = kind.__module__.startswith(("eventd.log.topics.errors", "eventd.api.topics")) and kind.code != "error"
    exits = ExitCode.ERROR if isinstance(error, SettingsError) else exit_code(error)
    return str((TOPICS_FORM if of_topics else API_FORM).status(error)), str(int(exits))


def test_every_code_of_an_error_is_in_the_reference() -> None:
    documented = rows("errors.md")
    errors = {kind: _statuses(kind) for kind in _declared_errors()}
    assert len(errors) > 30
    wrong = {
        kind.__name__: (statuses, documented.get(kind.code))
        for kind, statuses in errors.items()
        if kind.code not in documented
        or documented[kind.code][1] != statuses[0]
        or not documented[kind.code][2].startswith(statuses[1])
    }
    assert wrong == {}


def test_no_code_of_the_reference_is_gone() -> None:
    assert set(rows("errors.md")) == {kind.code for kind in _declared_errors()}


def test_every_option_of_the_spark_source_is_in_the_reference() -> None:
    assert list(rows("spark-source.md"))[: len(NAMES)] == list(NAMES)


def test_every_exit_code_is_in_the_reference() -> None:
    lines = (REFERENCE / "errors.md").read_text(encoding="utf-8").splitlines()
    assert [code for code in ExitCode if not any(line.startswith(f"| {int(code)} |") for line in lines)] == []


def test_every_metric_is_in_the_reference_with_its_kind_and_labels() -> None:
    documented = {name: (row[1], row[2].replace("`", "")) for name, row in rows("metrics.md").items()}
    collectors = Metrics().registry._names_to_collectors
    found = {}
    for family in Metrics().registry.collect():
        if not family.name.startswith("process_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels: tuple[str, ...] = getattr(collectors[name], "_labelnames", ())
            assert set(labels) <= set(LABELS)
            found[name] = (family.type, ", ".join(labels))
    assert found == documented


def test_the_metrics_of_the_process_are_named() -> None:
    text = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    for line in Metrics().render().decode().splitlines():
        if line.startswith("process_"):
            assert f"`{line.split()[0]}`" in text


@pytest.mark.parametrize("page", sorted(REFERENCE.glob("*.md")), ids=lambda page: page.stem)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: Path) -> None:
    """What a search and replace has torn apart is still a table to a browser, of other columns."""
    head = 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        cells = line.replace(r"\|", "").count("|") if line.startswith("|") else 0
        head = (head or cells) if cells else 0
        assert cells == head, f"{page.name}:{number} has {cells - 1} cells, and the table has {head - 1}: {line}"
