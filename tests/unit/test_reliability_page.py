"""The page on reliability is what its generator writes, and each guarantee of the README leads to its part of it."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.reliability.guarantees import GUARANTEES, Guarantee
from tests.reliability.page import KEPT, PAGE, build_page, read_kept
from tests.support.source import ROOT

README = (ROOT / "README.md").read_text()


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text() == build_page(read_kept()), "run `python -m tests.reliability`"


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda guarantee: anchor(guarantee.title))
def test_a_guarantee_of_the_readme_leads_to_what_shows_it(guarantee: Guarantee) -> None:
    assert f"[{guarantee.title}](docs/operations/reliability.md#{anchor(guarantee.title)})" in README
    assert f"\n### {guarantee.title}\n" in PAGE.read_text()
    assert [path for path in guarantee.tests if not (ROOT / path).exists()] == []


def test_each_guarantee_of_the_readme_is_on_the_page() -> None:
    guaranteed = README.partition("## What it guarantees\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\* \*\*", guaranteed, re.MULTILINE)) == len(GUARANTEES)


def test_each_violation_names_the_commit_that_fixed_it() -> None:
    listed = subprocess.run(["git", "log", "--format=%s"], cwd=ROOT, capture_output=True, text=True)
    titles = set(listed.stdout.splitlines())
    if listed.returncode or len(titles) < 2:
        pytest.skip("this is not a clone with a history")
    violations = json.loads((KEPT / "violations.json").read_text())
    assert [each["fixedBy"] for each in violations if each["fixedBy"] not in titles] == []
