"""From what a caller passed to a list of strings or a list of id arrays; wrong input is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cenote.errors import EmptyInputError, InputError, TooLongError
from cenote.text.tokenized import IntArray
from cenote.text.unicode import scalar_text

TokenIds = Sequence[int] | npt.NDArray[np.integer[Any]]
Texts = str | Sequence[str] | TokenIds | Sequence[TokenIds]
"""One string, strings, one list of token ids or lists of token ids."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands in the caller's arguments, for error messages: `texts[3]`, or `texts` for a single one."""

    param: str
    index: int | None

    def __str__(self) -> str:
        return self.param if self.index is None else f"{self.param}[{self.index}]"

    def error(self, message: str) -> InputError:
        """Return an `InputError` about this text; `message` reads on from its name."""
        return InputError(f"{self} {message}", param=self.param, index=self.index)

    def empty(self) -> EmptyInputError:
        """Return the error for a text that is a list of no token ids."""
        return EmptyInputError(f"{self} is an empty list of token ids", param=self.param, index=self.index)

    def too_long(self, length: int, limit: int, *, is_exact: bool = True) -> TooLongError:
        """Return the error for a text of `length` tokens, or more where that is not exact, which may not be cut."""
        count = f"{length}" if is_exact else f"more than {length}"
        message = f"{self} has {count} tokens and the limit is {limit}: shorten it or allow truncation"
        return TooLongError(message, param=self.param, index=self.index)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Exactly one of `texts` (valid Unicode) and `token_ids` (int64, in range, none empty) is not `None`."""

    texts: list[str] | None
    token_ids: list[IntArray] | None
    places: list[Place]


def read_inputs(value: Texts, *, param: str, vocab_size: int) -> Inputs:
    """Sort the four forms of input apart. Raise `InputError` that names the item which is wrong."""
    if isinstance(value, str):
        return Inputs([scalar_text(value)], None, [Place(param, None)])
    items = _items(value, param)
    if not len(items):
        raise EmptyInputError(f"{param} is empty: pass at least one text", param=param)
    if isinstance(items[0], str):
        return Inputs(_strings(items, param), None, _places(items, param))
    if _is_integer(items[0]):
        place = Place(param, None)
        return Inputs(None, [_read_ids(items, place, vocab_size)], [place])
    places = _places(items, param)
    arrays = [_read_ids(_id_list(item, place), place, vocab_size) for item, place in zip(items, places, strict=True)]
    return Inputs(None, arrays, places)


def read_strings(value: str | Sequence[str], *, param: str) -> tuple[list[str], list[Place]]:
    """As `read_inputs`, for arguments that take strings only."""
    if isinstance(value, str):
        return [scalar_text(value)], [Place(param, None)]
    items = _items(value, param)
    if not len(items):
        raise EmptyInputError(f"{param} is empty: pass at least one text", param=param)
    return _strings(items, param), _places(items, param)


def _items(value: object, param: str) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            raise _wrong_type(Place(param, None), value)
        return value.tolist() if value.dtype.kind in "UO" else list(value)
    if not isinstance(value, list | tuple):
        raise _wrong_type(Place(param, None), value)
    return value


def _places(items: Sequence[object], param: str) -> list[Place]:
    return [Place(param, i) for i in range(len(items))]


def _strings(items: Sequence[Any], param: str) -> list[str]:
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise Place(param, i).error(f"is {_kind(item)}, but the list began with a string: do not mix them")
    return [scalar_text(item) for item in items]


def _id_list(item: object, place: Place) -> Sequence[Any] | npt.NDArray[Any]:
    if isinstance(item, str) or _is_integer(item):
        raise place.error(f"is {_kind(item)}, but the list began with a list of token ids: do not mix them")
    if isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim == 1):
        return item
    raise _wrong_type(place, item)


def _read_ids(items: Sequence[Any] | npt.NDArray[Any], place: Place, vocab_size: int) -> IntArray:
    if not len(items):
        raise place.empty()
    if not (isinstance(items, np.ndarray) and items.dtype.kind in "iu"):
        for item in items:
            if not _is_integer(item):
                raise place.error(f"holds {_kind(item)} among its token ids; token ids are integers")
    if not (int(min(items)) >= 0 and int(max(items)) < vocab_size):
        raise _foreign(items, place, vocab_size)
    return np.asarray(items, dtype=np.int64)


def _foreign(items: Sequence[Any] | npt.NDArray[Any], place: Place, vocab_size: int) -> InputError:
    """Return the error for ids that the model does not have. LangChain sends those of OpenAI's models by default."""
    position, token_id = next((i, int(item)) for i, item in enumerate(items) if not 0 <= int(item) < vocab_size)
    return place.error(
        f"holds the token id {token_id} at position {position}, which this model does not have: its vocabulary has "
        f"{vocab_size} tokens, ids 0 to {vocab_size - 1}. Ids must come from this model's own tokenizer; "
        "LangChain's OpenAIEmbeddings sends those of OpenAI's models unless it is made with "
        "check_embedding_ctx_length=False"
    )


def _is_integer(item: object) -> bool:
    return isinstance(item, int | np.integer) and not isinstance(item, bool)


def _wrong_type(place: Place, item: object) -> InputError:
    return place.error(
        f"is {_kind(item)}; pass a string, a list of strings, a list of token ids or a list of lists of token ids"
    )


def _kind(item: object) -> str:
    names = {str: "a string", bool: "a boolean", float: "a float", bytes: "bytes", dict: "a mapping", int: "an integer"}
    return "null" if item is None else names.get(type(item), f"of type {type(item).__name__}")
