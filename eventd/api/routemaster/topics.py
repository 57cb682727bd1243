"""GET /topics and DELETE /topics/NAME."""

from __future__ import annotations

from aiohttp import web

from eventd.api.routemaster.answers import as_json, done, not_found
from eventd.api.routemaster.surface import SurfaceCall
from eventd.log.routemaster.errors import RmTopicNotFound
from eventd.log.routemaster.names import is_topic
from eventd.log.routemaster.subscriptions import DeleteRmTopic
from eventd.store.rows.routemaster import list_rm_topics


async def list_topics(call: SurfaceCall) -> web.Response:
    """List all topics with their publishers and counts."""
    topics = await call.surface.log.database.read(list_rm_topics)
    shown = call.caller.show
    return as_json(
        [{"name": each.name, "publisher": shown(each.publisher) or None, "events": each.events} for each in topics]
    )


async def delete(call: SurfaceCall) -> web.Response:
    """Delete a topic; events that wait for its subscribers are still delivered."""
    if not is_topic(call.name):
        return not_found()
    identity = None if call.caller.kind == "root" else call.caller.identity
    try:
        await call.surface.log.submit(DeleteRmTopic(call.name, identity))
    except RmTopicNotFound:
        return not_found()
    await call.surface.changed()
    return done()
