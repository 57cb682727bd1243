"""What two nodes do is a path of the model of a link, so what the model shows holds for the nodes."""

from __future__ import annotations

import pytest

from eventd.log.core.head import renew_epoch
from tests.integration.conftest import MakeSites
from tests.models.recorder import LinkRecorder
from tests.models.traces import check_link_trace
from tests.support.declared import PLAIN_GROUP, peer
from tests.support.sites import Site


async def _emit(a: Site, recorder: LinkRecorder, *ids: str) -> None:
    for each in ids:
        recorder.note("emit")
        await a.emit(each)
    await a.caught_up("b")


@pytest.mark.parametrize("renew", [False, True])
async def test_a_receiver_that_is_restored_takes_a_path_of_the_model(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch, renew: bool
) -> None:
    a, b = sites("a", "b")
    recorder = LinkRecorder(monkeypatch, "a", "b")
    for node in (a, b):
        await node.start()
        await node.join(**PLAIN_GROUP)
    await a.apply(peer("b", b.port))
    await _emit(a, recorder, "e1", "e2")
    copy = b.back_up()
    recorder.note("back up the receiver")
    await _emit(a, recorder, "e3", "e4")
    await b.stop()
    if renew:
        await a.running.log.database.write(renew_epoch)
        await a.stop()
        recorder.note("begin a new epoch")
    b.restore(copy)
    recorder.note("restore the receiver")
    await b.start()
    if renew:
        await a.start()
    await _emit(a, recorder, "e5")
    await b.holds("e1", "e2", "e3", "e4", "e5")
    assert check_link_trace(recorder.text) == "", recorder.text
    assert [label for label in recorder.labels if label[0] == "rewind"] == [("rewind", 2)]


async def test_a_trace_that_leaves_out_a_rewind_is_not_a_path_of_the_model() -> None:
    steps = ["emit", "ask", "open", "send", "store", "settle"]
    with_positions = {"send": "[0, 1]", "store": "[0, 1]", "settle": "[1]"}
    lines = [f'{{"step": "{step}", "with": {with_positions.get(step, "[]")}}}\n' for step in steps]
    backed_up = '{"step": "back up the receiver", "with": []}\n'
    restored = '{"step": "restore the receiver", "with": []}\n'
    asks = ['{"step": "ask", "with": []}\n', '{"step": "open", "with": []}\n']
    assert check_link_trace("".join([backed_up, *lines, restored])) == ""
    assert "is not possible" in check_link_trace("".join([backed_up, *lines, restored, *asks]))
