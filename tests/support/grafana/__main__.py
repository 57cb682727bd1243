"""Writes the boards in deploy/grafana anew."""

from __future__ import annotations

from tests.support.grafana.boards import BOARDS, FOLDER, rendered

for name in BOARDS:
    (FOLDER / name).write_text(rendered(name), encoding="utf-8")
