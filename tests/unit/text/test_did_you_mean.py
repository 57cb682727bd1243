from __future__ import annotations

from eventd.text.did_you_mean import did_you_mean


def test_the_most_similar_known_name_is_asked_for() -> None:
    assert did_you_mean("api_listn", iter(["data_dir", "api_listener", "api_listen"])) == "did you mean api_listen?"


def test_a_name_that_resembles_none_enough_gets_no_question() -> None:
    assert did_you_mean("x", ["data_dir"]) == did_you_mean("anything", []) == ""
    assert did_you_mean("listen", ["api_listen"])
    assert not did_you_mean("listen", ["api_listen"], 0.9)
