"""`cenote serve --config`: the same names as everywhere, one order of precedence, errors that name file and key."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cenote.cli import run
from cenote.cli._config_file import _KINDS, ModelEntry, read_config
from cenote.config import EngineOptions, ServerOptions
from cenote.errors import OptionError

FULL = """
host = "0.0.0.0"
port = 9000
api_key = ["one", "two"]
cors_origin = "https://app.example.com"
metrics_without_key = true
dtype = "float32"
max_length = 256

[[models]]
model = "./first"
name = "first"

[[models]]
model = "second/id"
max_length = 128
any_dimensions = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cenote.toml"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be served, by `models`, `others` and `options`, once `cenote serve` was run."""
    found: dict[str, Any] = {}
    module = sys.modules["cenote.cli.serve"]

    def note(models: object, others: object, options: object) -> None:
        found.update(models=models, others=others, options=options)

    monkeypatch.setattr(module, "_serve", note)
    return found


def test_a_file_sets_what_flags_set(file: Path) -> None:
    file.write_text(FULL)
    config = read_config(file)
    assert ServerOptions(**config.server) == ServerOptions(
        host="0.0.0.0",
        port=9000,
        api_key=("one", "two"),
        cors_origin=("https://app.example.com",),
        metrics_without_key=True,
    )
    assert config.engine == {"dtype": "float32", "max_length": 256}
    assert config.models == (
        ModelEntry(model="./first", name="first"),
        ModelEntry(model="second/id", options={"max_length": 128, "any_dimensions": True}),
    )


@pytest.mark.parametrize("options_type", [ServerOptions, EngineOptions])
def test_every_option_can_be_set(file: Path, options_type: type) -> None:
    written = {"int": "3", "bool": "true", "str": '"x"', "tuple[str, ...]": '["x"]'}
    for field in dataclasses.fields(options_type):
        kind = str(field.type).removesuffix(" | None")
        assert kind in _KINDS
        if field.name in ("name", "dtype", "log_format", "log_level", "cors_origin", "ssl_keyfile"):
            continue  # only some values, or only together with others
        file.write_text(f"{field.name} = {written[kind]}")
        config = read_config(file)
        assert {**config.server, **config.engine} == {
            field.name: {"int": 3, "bool": True, "str": "x"}.get(kind, ("x",))
        }


class TestPrecedence:
    def test_the_file_comes_before_the_defaults(self, file: Path, served: dict[str, Any]) -> None:
        file.write_text(FULL)
        assert run(["serve", "--config", str(file)]) == 0
        assert list(served["models"]) == ["first", "second/id"]
        first, second = (options for _, options in served["models"].values())
        assert (first.dtype, first.max_length, first.any_dimensions) == ("float32", 256, False)
        assert (second.dtype, second.max_length, second.any_dimensions) == ("float32", 128, True)
        assert (served["others"].dtype, served["others"].max_length) == ("float32", 256)
        assert (served["options"].port, served["options"].max_items) == (9000, 2048)

    def test_the_environment_before_the_file_and_flags_before_both(
        self, file: Path, served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.write_text(FULL)
        monkeypatch.setenv("CENOTE_CONFIG", str(file))
        monkeypatch.setenv("CENOTE_PORT", "9001")
        monkeypatch.setenv("CENOTE_HOST", "127.0.0.1")
        monkeypatch.setenv("CENOTE_API_KEY", "three")
        assert run(["serve", "--port", "9002", "--max-length", "64"]) == 0
        options = served["options"]
        assert (options.port, options.host, options.api_key) == (9002, "127.0.0.1", ("three",))
        assert [options.max_length for _, options in served["models"].values()] == [64, 64]

    def test_a_flag_with_the_default_value_counts(self, file: Path, served: dict[str, Any]) -> None:
        file.write_text(FULL)
        assert run(["serve", "--config", str(file), "--port", "8000", "--dtype", "auto"]) == 0
        assert served["options"].port == 8000
        assert {options.dtype for _, options in served["models"].values()} == {"auto"}

    def test_models_of_the_command_line_are_instead_of_those_of_the_file(
        self, file: Path, served: dict[str, Any]
    ) -> None:
        file.write_text(FULL)
        assert run(["serve", "other/id", "--config", str(file)]) == 0
        ((name, (model, options)),) = served["models"].items()
        assert (name, model, options.max_length) == ("other/id", "other/id", 256)

    def test_names_of_flags_are_for_models_of_the_file_too(self, file: Path, served: dict[str, Any]) -> None:
        file.write_text(FULL)
        assert run(["serve", "--config", str(file), "--name", "a", "--name", "b"]) == 0
        assert list(served["models"]) == ["a", "b"]

    def test_a_server_bounds_its_queue_unless_told_otherwise(self, file: Path, served: dict[str, Any]) -> None:
        file.write_text('[[models]]\nmodel = "a"\n\n[[models]]\nmodel = "b"\nmax_queue_tokens = 0')
        assert run(["serve", "--config", str(file)]) == 0
        assert [options.max_queue_tokens for _, options in served["models"].values()] == [4194304, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "`prot` is not an option; did you mean `port`"),
        ("max-length = 1", "`max-length` is not an option; did you mean `max_length`"),
        ("[model]\nname = 'a'", "`model` is not an option; did you mean `models`"),
        ("nonsense_at_all = 1", "`nonsense_at_all` is not an option$"),
        ("name = ['a']", r"`name` belongs to a model: put it under \[\[models\]\]"),
        ("port = 'eighty'", "`port` must be a whole number"),
        ("port = 80.0", "`port` must be a whole number"),
        ("port = true", "`port` must be a whole number"),
        ("any_dimensions = 'yes'", "`any_dimensions` must be true or false"),
        ("host = 1", "`host` must be a string"),
        ("api_key = ['geheim', 2]", "`api_key` must be a list of strings"),
        ("api_key = {a = 'geheim'}", "`api_key` must be a list of strings"),
        ("api_key = ['geheim wort']", "api_key number 1"),
        ("port = 70000", "port must be between 0 and 65535"),
        ("dtype = 'float8'", "dtype 'float8' is not one of"),
        ("models = ['a']", r"`models` must be tables: each model begins with \[\[models\]\]"),
        ("[[models]]\nname = 'a'", r"`models\[0\]\.model` is missing"),
        (
            "[[models]]\nmodel = 'a'\n[[models]]\nmodel = 'b'\nmax_lenth = 1",
            r"`models\[1\]\.max_lenth` .* `max_length`",
        ),
        ("[[models]]\nmodel = 'a'\nport = 1", r"`models\[0\]\.port` is not an option"),
        ("[[models]]\nmodel = 1", r"`models\[0\]\.model` must be a string"),
        ("[[models]]\nmodel = 'a'\nmax_length = 0", "max_length must be at least 1"),
        ("port = \nhost = 1", "is not TOML: .*line 1"),
    ],
)
def test_what_is_wrong_is_named(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(OptionError, match=message) as error:
        read_config(file)
    assert str(file) in str(error.value)
    assert "geheim" not in str(error.value)


def test_a_file_that_cannot_be_read(file: Path) -> None:
    with pytest.raises(OptionError, match=r"cenote\.toml: No such file"):
        read_config(file)
    file.write_bytes(b"host = '\xff'")
    with pytest.raises(OptionError, match="is not TOML"):
        read_config(file)


def test_errors_of_the_file_are_one_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("prot = 1")
    assert run(["serve", "--config", str(file)]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "`port`" in errors


def test_no_model_anywhere_is_wrong_usage(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("port = 1")
    assert run(["serve", "--config", str(file)]) == 2
    assert "MODELS" in capsys.readouterr().err


def test_help_says_every_variable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert run(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    for field in (*dataclasses.fields(ServerOptions), *dataclasses.fields(EngineOptions)):
        assert field.metadata["env"] == f"CENOTE_{field.name.upper()}"
        assert f"env var: {field.metadata['env']}]" in shown
    assert "env var: CENOTE_CONFIG]" in shown


def test_the_example_of_the_documents_is_right(file: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    file.write_text(example)
    assert [entry.name for entry in read_config(file).models] == ["minilm", None]
