"""`python -m tests.reliability`: writes docs/operations/reliability.md from the kept figures."""

from __future__ import annotations

from tests.reliability.page import PAGE, build_page, read_kept

PAGE.write_text(build_page(read_kept()))
