"""Opening and closing models for a server: those of its start, and those that are asked for while it runs."""

from __future__ import annotations

import gc
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

        What is alive then is set apart from Python's garbage collector, which would look through all of torch and
        transformers now and then, and every request would wait half a second for it. Raises as `AsyncEngine` does.
        """
        engine = AsyncEngine(model, options, loop=self.loop)
        for decision in engine.info.decisions:
            logger.info("%s: %s is %s (%s)", name, decision.what, decision.value, decision.reason)
        gc.freeze()
        return engine

    def close(self, engine: AsyncEngine) -> None:
        """Close a model beside others, and free its memory: this once, garbage is looked for everywhere."""
        engine.close()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
