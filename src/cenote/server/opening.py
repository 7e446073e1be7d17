"""Opening models for a server: those of its start, and those that are asked for while it runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from cenote.config import EngineOptions
from cenote.engine import AsyncEngine
from cenote.runtime.loop import Loop

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Opener:
    """Opens models on one loop, so that they share the device. `options` are for those that come without their own."""

    loop: Loop
    options: EngineOptions

    def open(self, name: str, model: str, options: EngineOptions) -> AsyncEngine:
        """Open `model`, a folder or a hub id, and log what was decided under `name`. Takes seconds.

        Raises as `AsyncEngine` does.
        """
        engine = AsyncEngine(model, options, loop=self.loop)
        for decision in engine.info.decisions:
            logger.info("%s: %s is %s (%s)", name, decision.what, decision.value, decision.reason)
        return engine
