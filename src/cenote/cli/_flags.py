"""From an options dataclass to flags: one field is one flag, with its own default, help and environment variable."""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter, env_var_split

from cenote.config import EngineOptions, ServerOptions, split_words

T = TypeVar("T")


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
    return typing.cast("type[T]", made)


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
