"""Help, version, exit codes, and errors of one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cenote import __version__
from cenote.cli import VERBS, run
from conftest import Cenote

NAMES = [verb.__name__.replace("_", "-") for verb in VERBS]
HEAVY = ("torch", "transformers", "numpy", "starlette", "uvicorn", "tokenizers")


def test_help_shows_every_verb(cenote: Cenote) -> None:
    done = cenote("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert str(verb.__doc__).split()[0] in done.stdout
        assert verb.__name__.replace("_", "-") in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_verb_has_examples(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run([name, "--help"]) == 0
    assert f"$ cenote {name} " in capsys.readouterr().out


def test_help_imports_nothing_heavy(environment: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from cenote.cli import run\n"
        f"for arguments in [['--help'], *[[name, '--help'] for name in {NAMES}]]:\n"
        "    assert run(arguments) == 0\n"
        f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_version(cenote: Cenote) -> None:
    assert cenote("--version").stdout.strip() == __version__


def test_installed_command_is_the_same() -> None:
    command = Path(sys.executable).with_name("cenote")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serv"], "serve"),
        (["serve"], "MODELS"),
        (["embed"], "MODEL"),
        (["serve", "x", "--port", "z"], "--port"),
        (["serve", "x", "--nope"], "--nope"),
        (["embed", "x", "--format", "csv"], "npy"),
        (["embed", "x", "--input-type", "image"], "document"),
    ],
)
def test_wrong_usage_is_one_line_and_2(capsys: pytest.CaptureFixture[str], arguments: list[str], named: str) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("cenote: error: ")
    assert captured.err.count("\n") == 1
    assert named in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve", "x", "--threads", "0"], "threads"),
        (["serve", "x", "--port", "70000"], "65535"),
        (["serve", "a", "b", "--name", "c"], "--name"),
        (["serve", "a", "a"], "--name"),
        (["embed", "/no/such/folder", "a text"], "/no/such/folder"),
        (["inspect", "/no/such/folder"], "/no/such/folder"),
        (["verify", "/no/such/folder"], "/no/such/folder"),
        (["embed", "x", "text", "--file", "y"], "--file"),
        (["embed", "x", "--file", "/no/such/file"], "/no/such/file"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_1(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert run(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("cenote: error: ")
    assert captured.err.count("\n") == 1
    assert named in captured.err


def test_environment_comes_before_the_default_and_after_the_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CENOTE_THREADS", "0")
    assert run(["inspect", "/no/such/folder"]) == 1
    assert "threads must be at least 1" in capsys.readouterr().err
    assert run(["inspect", "/no/such/folder", "--threads", "1"]) == 1
    assert "/no/such/folder" in capsys.readouterr().err


def test_wrong_environment_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CENOTE_PORT", "eighty")
    assert run(["serve", "x"]) == 2
    assert "CENOTE_PORT" in capsys.readouterr().err
