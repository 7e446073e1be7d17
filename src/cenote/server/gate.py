"""The gate of a server: open while it takes work, closed once it is told to stop; it counts what is inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cenote.errors import EngineClosedError


class Gate:
    """Used by the event loop and by signal handlers, which run on the same thread."""

    def __init__(self) -> None:
        self._open = True
        self._num_inside = 0

    @property
    def is_open(self) -> bool:
        """Whether work is taken."""
        return self._open

    @property
    def is_empty(self) -> bool:
        """Whether nothing that came in is still being answered."""
        return self._num_inside == 0

    def close(self) -> None:
        """Refuse what comes; what is inside may finish."""
        self._open = False

    def check_open(self) -> None:
        """Raise `EngineClosedError` where no work is taken any more."""
        if not self._open:
            raise EngineClosedError("the server is shutting down: send the request to another one, or again later")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Count one request until its answer is sent."""
        self._num_inside += 1
        try:
            yield
        finally:
            self._num_inside -= 1
