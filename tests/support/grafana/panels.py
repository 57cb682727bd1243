"""Panels and boards of Grafana in its classic JSON, laid out from left to right in rows of 24 columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.support.grafana.queries import Query

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
TAG = "routerd-eventd"
COLUMNS = 24
GOOD, NOTICE, WARN, BAD, WORST, NEUTRAL, OTHER = "green", "blue", "orange", "red", "dark-red", "light-blue", "purple"
STATES = (("running", GOOD), ("paused", NOTICE), ("backing-off", WARN), ("blocked", BAD), ("failed", WORST))
MEANINGS = {
    **dict(STATES),
    **dict.fromkeys(("delivered", "accepted", "ok", "succeeded", "done", "hit", "success", "answered"), GOOD),
    **dict.fromkeys(("duplicate", "repeated", "repeats", "expired", "p50"), NOTICE),
    **dict.fromkeys(("throttled", "p95", "failures", "older", "limit"), WARN),
    **dict.fromkeys(("refused", "lost", "dropped", "dead letters", "failure", "missing", "miss", "p99", "full"), BAD),
    **dict.fromkeys(("fatal", "unreachable", "invalid"), WORST),
}
"""The colour of each word with which a legend ends, on all boards."""


class Panel(NamedTuple):
    """One panel: its width in columns, its height, and its JSON without place and id."""

    width: int
    height: int
    body: Json


class Row(NamedTuple):
    """A row with a title; a collapsed one is opened by its reader, and asks for nothing before."""

    title: str
    panels: Sequence[Panel]
    collapsed: bool = False


def steps(*limits: tuple[float, str], base: str = GOOD) -> Json:
    """Return thresholds: the colour from each limit on, and `base` below the first."""
    shown: list[Json] = [{"color": base, "value": None}]
    return {"mode": "absolute", "steps": [*shown, *({"color": color, "value": limit} for limit, color in limits)]}


def time_series(
    title: str,
    about: str,
    unit: str,
    queries: Iterable[Query],
    *,
    width: int = 8,
    height: int = 8,
    stacked: bool = False,
    limits: Json | None = None,
    log: bool = False,
    least: float | None = 0,
    most: float | None = None,
) -> Panel:
    """Return a graph over time. `limits` are drawn as dashed lines, `log` has a logarithmic scale."""
    custom: Json = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 25 if stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
    }
    defaults: Json = {"unit": unit, "custom": custom, "color": {"mode": "palette-classic"}}
    defaults["thresholds"] = limits or steps()
    if least is not None and not log:
        defaults["min"] = least
    if most is not None:
        defaults["max"] = most
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"], "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    asked = [*queries]
    return Panel(width, height, _body("timeseries", title, about, asked, defaults, options, _colours(asked)))


def stat(
    title: str,
    about: str,
    unit: str,
    expression: str,
    *,
    limits: Json | None = None,
    width: int = 4,
    height: int = 4,
    decimals: int = 0,
) -> Panel:
    """Return one figure with its recent course."""
    defaults: Json = {"unit": unit, "color": {"mode": "thresholds"}, "thresholds": limits or steps(base=NEUTRAL)}
    defaults |= {"decimals": decimals, "noValue": "–"}
    options = {
        "graphMode": "area",
        "colorMode": "value",
        "justifyMode": "auto",
        "textMode": "value",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return Panel(width, height, _body("stat", title, about, [Query(expression, "")], defaults, options))


def state_timeline(title: str, about: str, query: Query, *, width: int = 24, height: int = 8) -> Panel:
    """Return one line for each series, with the state at each time."""
    defaults: Json = {"mappings": _state_mappings(), "color": {"mode": "thresholds"}, "thresholds": steps(base=NEUTRAL)}
    defaults |= {"unit": "none", "custom": {"lineWidth": 0, "fillOpacity": 85}}
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "rowHeight": 0.85,
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single"},
    }
    return Panel(width, height, _body("state-timeline", title, about, [query], defaults, options))


def heatmap(title: str, about: str, query: Query, *, width: int = 8, height: int = 8) -> Panel:
    """Return the distribution of a histogram over time."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "reverse": False, "exponent": 0.5},
        "yAxis": {"unit": "s", "axisPlacement": "left"},
        "legend": {"show": True},
        "tooltip": {"show": True, "yHistogram": True},
        "rowsFrame": {"layout": "auto"},
    }
    defaults: Json = {"unit": "short", "custom": {"scaleDistribution": {"type": "linear"}}}
    return Panel(width, height, _body("heatmap", title, about, [query], defaults, options))


class Column(NamedTuple):
    """A column of a table: its query, and how its values look."""

    title: str
    expression: str
    unit: str
    limits: Json | None = None
    state: bool = False


def table(
    title: str,
    about: str,
    labels: Sequence[str],
    columns: Sequence[Column],
    *,
    width: int = 24,
    least_first: bool = False,
) -> Panel:
    """Return a table with a row for each combination of the labels, sorted by its first column of values."""
    names = [chr(ord("A") + number) for number in range(len(columns))]
    queries = [Query(column.expression, "", instant=True) for column in columns]
    renamed = {f"Value #{name}": column.title for name, column in zip(names, columns, strict=True)}
    if len(columns) == 1:
        renamed = {"Value": columns[0].title}  # Grafana numbers only several of them
    order = {name: place for place, name in enumerate([*labels, *renamed])}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": renamed}
    overrides = [_column(column) for column in columns]
    defaults: Json = {"unit": "short", "custom": {"align": "auto", "filterable": True}, "thresholds": steps()}
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [{"displayName": columns[0].title, "desc": not least_first}],
    }
    body = _body("table", title, about, queries, defaults, options, overrides)
    body["transformations"] = [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]
    return Panel(width, 8, body)


def _column(column: Column) -> Json:
    properties: list[Json] = [{"id": "unit", "value": column.unit}]
    if column.state:
        properties.append({"id": "mappings", "value": _state_mappings()})
    if column.state or column.limits:
        cell = {"type": "color-background" if column.state else "color-text", "mode": "basic"}
        properties.append({"id": "custom.cellOptions", "value": cell})
    if column.limits:
        properties.append({"id": "thresholds", "value": column.limits})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}


def _state_mappings() -> list[Json]:
    options = {str(code): {"text": word, "color": color} for code, (word, color) in enumerate(STATES, 1)}
    return [{"type": "value", "options": {code: {**one, "index": int(code) - 1} for code, one in options.items()}}]


def _colours(queries: Iterable[Query]) -> list[Json]:
    """Return the overrides that give series whose name ends with a known word the colour of its meaning."""
    legends = [query.legend for query in queries]
    open_ended = any(re.search(r"\{\{(state|status|result)\}\}$", legend) for legend in legends)
    words: dict[str, list[str]] = {}
    for word, colour in MEANINGS.items():
        if open_ended or any(_ends(legend, word) for legend in legends):
            words.setdefault(colour, []).append(word)
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/(^|.* )({'|'.join(those)})$/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for colour, those in words.items()
    ]


def _ends(legend: str, word: str) -> bool:
    return legend == word or legend.endswith(f" {word}")


def _body(
    kind: str,
    title: str,
    about: str,
    queries: Sequence[Query],
    defaults: Json,
    options: Json,
    overrides: Sequence[Json] = (),
) -> Json:
    targets = [_target(chr(ord("A") + number), query) for number, query in enumerate(queries)]
    return {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": [*overrides]},
        "options": options,
    }


def _target(name: str, query: Query) -> Json:
    found: Json = {"refId": name, "datasource": DATASOURCE, "editorMode": "code", "expr": query.expression}
    found |= {"legendFormat": query.legend or "__auto", "range": not query.instant, "instant": query.instant}
    found["format"] = "table" if query.instant else "heatmap" if query.heatmap else "time_series"
    return found


def variable(name: str, label: str, metric: str) -> Json:
    """Return a variable with the values of a label of a metric; all of them unless the reader chooses."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({metric}, {name})", "refId": name},
        "definition": f"label_values({metric}, {name})",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def board(uid: str, title: str, about: str, variables: Sequence[Json], rows: Sequence[Row]) -> Json:
    """Return a whole board. Its links lead to the others, with the same time and variables."""
    datasource = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    link = {"type": "dashboards", "tags": [TAG], "title": "routerd-eventd", "asDropdown": False, "icon": "dashboard"}
    link |= {"includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "The other boards", "url": ""}
    return {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": [TAG],
        "schemaVersion": 37,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [link],
        "annotations": {"list": [_firing_alerts(), _restarts()]},
        "templating": {"list": [datasource, *variables]},
        "panels": _placed(rows),
    }


def _firing_alerts() -> Json:
    expression = 'ALERTS{alertname=~"Eventd.*|Routemaster.*",alertstate="firing",instance=~"$instance"}'
    return _annotation("Alerts", BAD, expression, "{{alertname}}", "{{instance}} {{group}} {{peer}}{{callback}}")


def _restarts() -> Json:
    expression = 'changes(process_start_time_seconds{instance=~"$instance"}[$__rate_interval]) > 0'
    return _annotation("Restarts", NOTICE, expression, "restart", "{{instance}}")


def _annotation(name: str, colour: str, expression: str, title: str, text: str) -> Json:
    found: Json = {"name": name, "datasource": DATASOURCE, "enable": True, "iconColor": colour, "expr": expression}
    return found | {"titleFormat": title, "textFormat": text, "step": "60s"}


def _placed(rows: Sequence[Row]) -> list[Json]:
    placed: list[Json] = []
    top, number = 0, 0
    for row in rows:
        number += 1
        head: Json = {"type": "row", "id": number, "title": row.title, "collapsed": row.collapsed, "panels": []}
        head["gridPos"] = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        placed.append(head)
        inner, bottom = [], top + 1
        left, line, line_height = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, line, line_height = 0, line + line_height, 0
            number += 1
            place = {"x": left, "y": line, "w": panel.width, "h": panel.height}
            inner.append({"id": number, "gridPos": place, **panel.body})
            left, line_height = left + panel.width, max(line_height, panel.height)
            bottom = line + line_height
        if row.collapsed:
            head["panels"] = inner
            top += 1
        else:
            placed += inner
            top = bottom
    return placed
