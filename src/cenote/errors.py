"""Every exception that Cenote raises on purpose.

CenoteError
├── InputError                 a request is wrong: names the parameter and the item          400
│   ├── EmptyInputError        there is no text, or a text of no token ids                    400
│   ├── TooLongError           a text is over the limit and truncation is off                 400
│   ├── UnsupportedTaskError   the model does not offer this task                             400
│   ├── UnknownModelError      no model of that name is loaded                                404
│   ├── MediaTypeError         a request body of a type or encoding that is not read          415
│   └── SlowBodyError          a request body that did not arrive in time                     408
├── OversizeError              a request that could never be scheduled                        413
├── BusyError                  the queue is full: try again later                             429
├── CheckpointError            a checkpoint cannot be served as it is                        start
├── OptionError                an option of the engine, server or command line is wrong      start
├── MissingExtraError          an optional dependency is not installed                       start
└── EngineError                the work was accepted and failed                               500
    ├── NonFiniteError         the model gave NaN or infinity for this request                500
    ├── DeviceMemoryError      the device ran out of memory for this request                  500
    ├── DeadlineError          the request's deadline passed before its work was done         504
    └── EngineClosedError      the engine is shut down or its loop has died                   503
"""

from __future__ import annotations

from typing import Self


class CenoteError(Exception):
    """Base of every exception that Cenote raises on purpose."""

    status: int = 500
    """The HTTP status that a dialect answers with, unless its clients expect another."""


class InputError(CenoteError):
    """A caller's mistake, found before anything was queued.

    `param` is the name of the wrong argument and `index` the position of the wrong item in it, where there is one.
    """

    status = 400

    def __init__(self, message: str, *, param: str | None = None, index: int | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.index = index

    def named(self, place: str, index: int) -> Self:
        """Return the same error with the wrong item called `place`, at position `index` of what the caller passed."""
        message = str(self).replace(f"{self.param}[{self.index}]", place)
        return type(self)(message, param=self.param, index=index)


class EmptyInputError(InputError):
    """There is no text at all, or a list of token ids that is empty."""


class TooLongError(InputError):
    """A text has more tokens than the model takes, and the caller asked not to truncate."""


class UnsupportedTaskError(InputError):
    """The loaded model does not offer the task that was asked for."""


class UnknownModelError(InputError):
    """No loaded model has the name that was asked for."""

    status = 404


class MediaTypeError(InputError):
    """The request body has a content type or a compression that the server does not read."""

    status = 415


class SlowBodyError(InputError):
    """The request body did not arrive in time."""

    status = 408


class OversizeError(CenoteError):
    """A request that could never be scheduled, however long it waited."""

    status = 413


class BusyError(CenoteError):
    """The queue is full. `retry_after` is a number of seconds after which to try again."""

    status = 429

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CheckpointError(CenoteError):
    """A checkpoint asks for something that cannot be served right, so it is not served."""


class OptionError(CenoteError):
    """An option has a value that cannot be used."""


class MissingExtraError(CenoteError):
    """An optional dependency is missing; the message names the extra that installs it."""


class EngineError(CenoteError):
    """Accepted work that failed."""


class NonFiniteError(EngineError):
    """The model produced NaN or infinity for this request."""


class DeviceMemoryError(EngineError):
    """The device had too little memory for this request."""


class DeadlineError(EngineError):
    """The request's deadline passed before its work was done."""

    status = 504


class EngineClosedError(EngineError):
    """The engine was closed, its model unloaded, its device is stuck, or its loop died."""

    status = 503
