"""`cenote bench`: how fast is a model here, or a server at an address?"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Group, Parameter

from cenote.cli._flags import EngineFlags, given
from cenote.cli._measure import BenchTexts, OfflineJob, OnlineJob, check_answers
from cenote.config import EngineOptions, option, split_words
from cenote.errors import OptionError

T = TypeVar("T", int, float)

DEFAULT_CLIENTS = "16"


@Parameter(name="*", group=Group("Server options", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class BenchServer:
    """Which server is asked, and how."""

    url: str | None = option(None, help="Ask the server at this address, such as http://127.0.0.1:8000/v1/embeddings.")
    api_key: Annotated[str | None, Parameter(env_var="CENOTE_API_KEY")] = option(
        None, help="Key for the server.", is_secret=True
    )
    clients: str | None = option(
        None, help="Clients that each wait for their answer (closed loop): numbers with commas; by default 16."
    )
    rate: str | None = option(
        None, help="Requests a second that come whether or not others are answered (open loop): numbers with commas."
    )
    batch: int = option(1, help="Texts in each request.")
    encoding_format: Literal["float", "base64"] = option("float", help="How the server is to write vectors.")


@Parameter(name="*", group=Group("Measuring", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """How long is measured, and where the figures go."""

    seconds: float = option(10.0, help="Length of each measurement.")
    rounds: int = option(5, help="Most rounds over the texts, without --url.")
    json: Path | None = option(None, help="Write all figures to this file.")
    plot: Path | None = option(None, help="Draw throughput and latency into this .svg or .png file, with --url.")


def bench(
    model: Annotated[str, Parameter(help="Folder or hub id; with --url the name that the server knows.")],
    *,
    texts: BenchTexts | None = None,
    server: BenchServer | None = None,
    run: BenchRun | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Measure the speed of a model in this process, or of any server with OpenAI's embeddings route.

    In an open loop a latency is counted from the time at which its request was due. The names of the figures are those
    of `vllm bench serve`.

    $ cenote bench ./models/all-MiniLM-L6-v2 --corpus short
    $ cenote bench --url http://127.0.0.1:8000/v1/embeddings --model all-MiniLM-L6-v2 --clients 1,16,64 --plot speed.svg
    $ cenote bench --url http://127.0.0.1:8000/v1/embeddings --model all-MiniLM-L6-v2 --rate 50,100 --seconds 30
    """
    texts, server, run = texts or BenchTexts(), server or BenchServer(), run or BenchRun()
    _check(server, run, engine)
    if server.url is None:
        rows = [_offline(model, engine or EngineOptions(), run, texts.read())]
    else:
        rows = _online(_job(model, server, run, texts.seed), texts.read())
    if run.json is not None:
        run.json.write_text(json.dumps({"model": model, "url": server.url, "results": rows}, indent=2) + "\n")
    if run.plot is not None:
        _draw(run.plot, model, rows)
    if server.url is not None:
        check_answers(rows)


def _check(server: BenchServer, run: BenchRun, engine: EngineOptions | None) -> None:
    """Refuse what would be ignored, or could not be written after the measurement."""
    if server.url is None and (run.plot or server.clients or server.rate):
        raise OptionError("--plot, --clients and --rate are for a server; name it with --url")
    if server.url is not None and (flags := _model_flags(engine)):
        raise OptionError(f"{', '.join(flags)}: model options are not for a server that runs already")
    if server.clients and server.rate:
        raise OptionError("give either --clients (closed loop) or --rate (open loop), not both")
    if run.seconds <= 0 or run.rounds < 1:
        raise OptionError("--seconds must be over 0 and --rounds at least 1")
    for path in (run.json, run.plot):
        if path is not None and not path.parent.is_dir():
            raise OptionError(f"{path} cannot be written: there is no folder {path.parent}")
    if run.plot is not None:
        from cenote.bench.plot import check_plot

        check_plot(run.plot)


def _model_flags(engine: EngineOptions | None) -> list[str]:
    """Return the model options that were given as flags: those of the environment may be meant for other commands."""
    variables = {field.name: field.metadata["env"] for field in dataclasses.fields(EngineOptions)}
    return [f"--{name.replace('_', '-')}" for name in given(engine) if variables[name] not in os.environ]


def _offline(model: str, engine: EngineOptions, run: BenchRun, texts: list[str]) -> dict[str, Any]:
    from cenote.bench.report import offline_text

    job = OfflineJob(model=model, engine=engine, rounds=run.rounds, seconds=run.seconds)
    figures = job.run(texts)
    sys.stdout.write(offline_text(figures))
    return figures


def _job(model: str, server: BenchServer, run: BenchRun, seed: int) -> OnlineJob:
    assert server.url is not None
    return OnlineJob(
        model=model,
        url=server.url,
        api_key=server.api_key,
        batch=server.batch,
        encoding_format=server.encoding_format,
        clients=() if server.rate else _numbers("--clients", server.clients or DEFAULT_CLIENTS, int),
        rates=_numbers("--rate", server.rate, float) if server.rate else (),
        seconds=run.seconds,
        seed=seed,
    )


def _online(job: OnlineJob, texts: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for figures, text in job.run(texts):
        sys.stdout.write(("\n" if rows else "") + text)
        sys.stdout.flush()
        rows.append(figures)
    return rows


def _numbers(flag: str, words: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    try:
        numbers = tuple(kind(word) for word in split_words(words))
    except ValueError:
        numbers = ()
    if not numbers or not all(0 < number < float("inf") for number in numbers):
        raise OptionError(f"{flag} {words!r} must be numbers over 0, with commas between them")
    return numbers


def _draw(path: Path, model: str, rows: list[dict[str, Any]]) -> None:
    from cenote.bench.plot import Panel, Plot, write_plot

    def line(key: str) -> list[float]:
        return [float("nan") if row[key] is None else row[key] for row in rows]

    x = "clients" if rows[0]["request_rate"] is None else "request_rate"
    speed = Panel(y="requests/s", lines={"answered": line("request_throughput")})
    latency = Panel(y="latency in ms", lines={"p50": line("median_e2el_ms"), "p99": line("p99_e2el_ms")})
    x_name = "clients" if x == "clients" else "requests/s that came"
    write_plot(path, Plot(title=model, x=x_name, xs=line(x), panels=(speed, latency)))
