"""Giving up on work whose client has left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from cenote.server.body import ClientGoneError

T = TypeVar("T")


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Await `work`; cancel it and raise `ClientGoneError` as soon as the client closes the connection.

    The request body must have been read to its end before.
    """
    task = asyncio.current_task()
    assert task is not None
    watcher = asyncio.create_task(_until_gone(receive))
    watcher.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
    try:
        return await work
    except asyncio.CancelledError:
        if not watcher.done():
            raise  # somebody else cancelled: the server is shutting down
        task.uncancel()
        raise ClientGoneError from None
    finally:
        watcher.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
