"""`cenote serve`: models behind an HTTP server."""

from __future__ import annotations

import json
import logging
import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cenote.cli._flags import EngineFlags, ServerFlags
from cenote.config import EngineOptions, ServerOptions
from cenote.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from cenote.engine import AsyncEngine

logger = logging.getLogger(__name__)

LAST_SECONDS = 10.0
"""What the models get to end after the last answer; a step that hangs must not keep the process."""


def serve(
    *models: Annotated[str, Parameter(required=True, help="Folders or hub ids. Requests choose by the model's name.")],
    server: ServerFlags | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Serve one or several models over HTTP, with OpenAI's API.

    Prints the address and a curl line when it is ready. Stop it with Ctrl-C or SIGTERM: what runs is finished first.

    $ cenote serve sentence-transformers/all-MiniLM-L6-v2
    $ cenote serve ./models/all-MiniLM-L6-v2 --name minilm --port 9000
    $ cenote serve BAAI/bge-m3 ./my-model --name bge --name mine
    """
    server_options = server or ServerOptions()
    names = _names(models, server_options.name)
    try:
        from cenote.server import keys, listen, logs, tracing
        from cenote.server.app import create_app
        from cenote.server.gate import Gate
        from cenote.server.run import Server, run
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the server needs {error.name}: pip install 'cenote[server]'") from None
    logs.configure(server_options.log_format, server_options.log_level)
    is_open = not keys.read_keys(server_options)
    spans = tracing.open_tracing(os.environ)
    listener = listen.bind(server_options)
    if is_open and listen.is_public(listener):
        logger.warning("other machines can reach this server, and it asks for no key: set --api-key-file or --host")
    with ExitStack() as stack:
        stack.callback(listen.release, listener, server_options)
        watchdog = threading.Timer(LAST_SECONDS, _give_up)
        watchdog.daemon = True
        stack.callback(watchdog.cancel)
        engines = _open(dict(zip(names, models, strict=True)), engine or EngineOptions(), stack)
        stack.callback(watchdog.start)
        if spans is not None:
            stack.callback(spans.close)
        gate = Gate()
        app = create_app(engines, server_options, gate, spans)
        url = listen.url_of(listener, server_options)
        run(Server(app, server_options, gate, lambda: _announce(url, server_options, engines)), listener)


def _give_up() -> None:
    logger.critical("a step did not end within %d seconds after the last answer: giving up", LAST_SECONDS)
    os._exit(1)


def _announce(url: str, options: ServerOptions, engines: Mapping[str, AsyncEngine]) -> None:
    print(greeting(url, options, engines), flush=True)


def _open(models: dict[str, str], options: EngineOptions, stack: ExitStack) -> dict[str, AsyncEngine]:
    """Load every model onto one loop, so that they share the device."""
    from cenote.engine import AsyncEngine
    from cenote.runtime.loop import Loop

    loop = Loop()
    stack.callback(loop.close)
    engines: dict[str, AsyncEngine] = {}
    for name, model in models.items():
        engines[name] = AsyncEngine(model, options, loop=loop)
        for decision in engines[name].info.decisions:
            logger.info("%s: %s is %s (%s)", name, decision.what, decision.value, decision.reason)
        stack.callback(engines[name].close)
    return engines


def _names(models: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the served name of each model: as asked for, else the hub id or the folder's name."""
    if names and len(names) != len(models):
        raise OptionError(f"--name was given {len(names)} times for {len(models)} models; give it once for each")
    chosen = list(names) or [Path(model).resolve().name if Path(model).is_dir() else model for model in models]
    if len(set(chosen)) != len(chosen):
        raise OptionError(f"two models would have the same name: {', '.join(chosen)}; give each a --name")
    return chosen


def greeting(url: str, options: ServerOptions, engines: Mapping[str, AsyncEngine]) -> str:
    """Return what is printed once the server takes requests: where it is, and a line to try it with."""
    name = next((name for name, engine in engines.items() if "embed" in engine.info.tasks), None)
    address = url if options.uds is None else f"the Unix socket {options.uds}"
    lines = [f"Cenote serves {', '.join(engines)} on {address}"]
    if name is not None:
        lines += ["", f"  {shlex.join(_curl(url, options, name))}", ""]
    return "\n".join(lines)


def _curl(url: str, options: ServerOptions, name: str) -> list[str]:
    """Return a command that works on this machine, but for the key, which is not shown."""
    body = json.dumps({"model": name, "input": "The water is clear."})
    command = ["curl", "-s", f"{url}/v1/embeddings", "-H", "Content-Type: application/json", "-d", body]
    if options.api_key or options.api_key_file is not None:
        command += ["-H", "Authorization: Bearer YOUR_KEY"]
    if options.uds is not None:
        command[2:2] = ["--unix-socket", options.uds]
    if options.ssl_certfile is not None:
        command.insert(2, "-k")  # the certificate is hardly for the name of this machine's own address
    return command
