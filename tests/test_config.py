"""Options: one default each, environment variables, and refusals that name what is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from cenote.config import EngineOptions, from_keywords
from cenote.errors import OptionError


def test_keywords_win_over_the_environment_and_the_environment_over_defaults() -> None:
    environ = {"CENOTE_DTYPE": "bfloat16", "CENOTE_MAX_LENGTH": "128", "CENOTE_ANY_DIMENSIONS": "yes"}
    options = from_keywords(EngineOptions, {"dtype": "float32"}, environ)
    assert (options.dtype, options.max_length, options.any_dimensions) == ("float32", 128, True)
    assert from_keywords(EngineOptions, {}, {}) == EngineOptions()


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"CENOTE_MAX_LENGTH": "many"}, "CENOTE_MAX_LENGTH must be a whole number"),
        ({"CENOTE_ANY_DIMENSIONS": "perhaps"}, "CENOTE_ANY_DIMENSIONS must be true or false"),
        ({"CENOTE_DTYPE": "int3"}, "dtype 'int3' is not one of"),
        ({"CENOTE_MAX_BATCH_TOKENS": "0"}, "max_batch_tokens must be at least 1"),
    ],
)
def test_bad_values_are_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_keywords(EngineOptions, {}, environ)


def test_unknown_keywords_are_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'max_lenght'; known options: .*max_length"):
        from_keywords(EngineOptions, {"max_lenght": 3}, {})


def test_every_option_has_help_and_its_own_variable() -> None:
    fields = dataclasses.fields(EngineOptions)
    assert all(field.metadata["help"].endswith(".") for field in fields)
    variables = [field.metadata["env"] for field in fields]
    assert variables == [f"CENOTE_{field.name.upper()}" for field in fields]
