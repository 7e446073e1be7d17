"""The models of one server, by the names that clients ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from cenote.engine import AsyncEngine
from cenote.errors import InputError, UnknownModelError
from cenote.params import Task

Fits = Callable[[AsyncEngine], bool]
"""Whether a model can do what a request needs."""


def offers(task: Task) -> Fits:
    return lambda engine: task in engine.info.tasks


class ServedModels:
    """Engines in the order in which they came. Used on one event loop."""

    def __init__(self, engines: Mapping[str, AsyncEngine]) -> None:
        self._engines = dict(engines)
        self.started = int(time.time())
        """Unix seconds"""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._engines)

    def find(self, name: str | None) -> tuple[str, AsyncEngine]:
        """Return the served name and the engine that a request means.

        No name means the only model; raises `UnknownModelError` for a name that is not served.
        """
        if name is None:
            if len(self._engines) == 1:
                return next(iter(self._engines.items()))
            raise InputError(f"`model` is required: this server has {self._listed()}", param="model")
        if name not in self._engines:
            raise UnknownModelError(
                f"the model {name[:200]!r} is not served here; served: {self._listed()}", param="model"
            )
        return name, self._engines[name]

    def add(self, name: str, engine: AsyncEngine) -> None:
        """Serve one more model."""
        self._engines[name] = engine

    def remove(self, name: str) -> AsyncEngine:
        """Stop serving a model and return its engine, which is still open; raises `UnknownModelError`."""
        _, engine = self.find(name)
        del self._engines[name]
        return engine

    def fitting(self, name: str | None, *fits: Fits) -> str | None:
        """Return `name`, or without one the only model that is as the first of `fits` which any model is.

        `None` where several are: the caller has to say which.
        """
        if name is not None:
            return name
        for fit in fits:
            fitting = [served for served, engine in self._engines.items() if fit(engine)]
            if fitting:
                return fitting[0] if len(fitting) == 1 else None
        return None

    def unhealthy(self) -> list[str]:
        """Return the names of the models that cannot answer any more."""
        return [name for name, engine in self._engines.items() if not engine.healthy]

    def _listed(self) -> str:
        return ", ".join(self._engines) or "no model"
