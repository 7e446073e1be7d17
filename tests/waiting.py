"""A wait that ends: what never comes fails the test, and does not hang it."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECONDS = 30.0


def until(holds: Callable[[], bool]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < end, "it does not come to this"
        time.sleep(0.01)
