"""From an options dataclass to flags: one field is one flag, with its own default, help and environment variable."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter, env_var_split

from cenote.config import EngineOptions, ServerOptions, split_words

T = TypeVar("T")

_GIVEN = "_given"


def _with_flags(options_type: type[T]) -> type[T]:
    """Return a subclass of `options_type` whose fields know their environment variables, as cyclopts reads them."""
    hints = typing.get_type_hints(options_type)
    fields: list[tuple[str, Any, Any]] = [
        (field.name, Annotated[hints[field.name], _parameter(field)], _copy(field))
        for field in dataclasses.fields(options_type)  # type: ignore[arg-type]
    ]
    made = dataclasses.make_dataclass(
        options_type.__name__,
        fields,
        bases=(options_type,),
        frozen=True,
        kw_only=True,
        namespace={"__module__": __name__},
    )
    return typing.cast("type[T]", _remembering(made))


def given(options: object | None) -> Mapping[str, Any]:
    """Return what was set by flags and the environment, of options that were made from them."""
    found: Mapping[str, Any] = getattr(options, _GIVEN, {})
    return found


def _remembering(made: type) -> type:
    """Have the instances of a dataclass remember which fields were passed: cyclopts leaves the others out."""
    generated = made.__init__  # type: ignore[misc]

    @functools.wraps(generated)
    def init(self: object, **values: Any) -> None:
        generated(self, **values)
        object.__setattr__(self, _GIVEN, values)

    made.__init__ = init  # type: ignore[misc]
    return made


def _parameter(field: dataclasses.Field[Any]) -> Parameter:
    is_plain_switch = field.default is False
    return Parameter(
        env_var_split=_words if isinstance(field.default, tuple) else env_var_split,
        env_var=field.metadata["env"],
        negative_iterable=(),
        negative_bool=() if is_plain_switch else None,
        show_default=field.default not in ((), False, None),
    )


def _words(_type: Any, text: str, **_: Any) -> list[str]:
    return list(split_words(text))


def _copy(field: dataclasses.Field[Any]) -> Any:
    return dataclasses.field(default=field.default, metadata=field.metadata, repr=field.repr)


if typing.TYPE_CHECKING:
    EngineFlags = EngineOptions
    ServerFlags = ServerOptions
else:
    EngineFlags = Annotated[_with_flags(EngineOptions), Parameter(name="*", group=Group("Model options", sort_key=2))]
    ServerFlags = Annotated[_with_flags(ServerOptions), Parameter(name="*", group=Group("Server options", sort_key=1))]
