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

from cyclopts import CycloptsError, Parameter

from cenote.cli._config_file import ConfigFile, ModelEntry, read_config
from cenote.cli._flags import EngineFlags, ServerFlags, given
from cenote.config import EngineOptions, ServerOptions
from cenote.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from cenote.engine import AsyncEngine
    from cenote.runtime.loop import Loop
    from cenote.server.opening import Opener

logger = logging.getLogger(__name__)

_CONFIG = Parameter(
    env_var="CENOTE_CONFIG", help="TOML file with these options and models; flags and variables come before it."
)
_SERVED = {"max_queue_tokens": 4 * 1024 * 1024}
"""What is otherwise by default where a model is served: an endless queue would be answered too late."""
LAST_SECONDS = 10.0
"""What the models get to end after the last answer; a step that hangs must not keep the process."""


def serve(
    *models: Annotated[str, Parameter(help="Folders or hub ids. Requests choose by the model's name.")],
    config: Annotated[Path | None, _CONFIG] = None,
    server: ServerFlags | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Serve one or several models over HTTP, with the APIs that clients speak already.

    Prints the address and a curl line when it is ready. Stop it with Ctrl-C or SIGTERM: what runs is finished first.

    $ cenote serve sentence-transformers/all-MiniLM-L6-v2
    $ cenote serve ./models/all-MiniLM-L6-v2 --name minilm --port 9000
    $ cenote serve BAAI/bge-m3 ./my-model --name bge --name mine
    $ cenote serve --config cenote.toml
    """
    file = ConfigFile() if config is None else read_config(config)
    options = ServerOptions(**{**file.server, **given(server)})
    entries = _named([ModelEntry(model=model) for model in models] or file.models, options.name)
    all_models = {**_SERVED, **file.engine}
    chosen = {
        name: (entry.model, EngineOptions(**{**all_models, **entry.options, **given(engine)}))
        for name, entry in entries.items()
    }
    _serve(chosen, EngineOptions(**{**all_models, **given(engine)}), options)


def _serve(models: Mapping[str, tuple[str, EngineOptions]], others: EngineOptions, options: ServerOptions) -> None:
    """Load the models by their names, and serve them until a signal comes; `others` are for models that come later."""
    try:
        from cenote.server import keys, listen, logs, tracing
        from cenote.server.app import create_app
        from cenote.server.gate import Gate
        from cenote.server.opening import Opener
        from cenote.server.run import Server, ending_at_once, run
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the server needs {error.name}: pip install 'cenote[server]'") from None
    logs.configure(options.log_format, options.log_level)
    is_open = not keys.read_keys(options)
    spans = tracing.open_tracing(os.environ)
    listener = listen.bind(options)
    if is_open and listen.is_public(listener):
        logger.warning("other machines can reach this server, and it asks for no key: set --api-key-file or --host")
    with ExitStack() as stack:
        stack.enter_context(ending_at_once())
        stack.callback(listen.release, listener, options)
        watchdog = threading.Timer(LAST_SECONDS, _give_up)
        watchdog.daemon = True
        stack.callback(watchdog.cancel)
        opener = Opener(loop=_loop(stack), options=others)
        engines = _open(models, opener, stack)
        stack.callback(watchdog.start)
        if spans is not None:
            stack.callback(spans.close)
        gate = Gate()
        app = create_app(engines, options, gate, spans, opener)
        url = listen.url_of(listener, options)
        run(Server(app, options, gate, lambda: _announce(url, options, engines)), listener)


def _give_up() -> None:
    logger.critical("a step did not end within %d seconds after the last answer: giving up", LAST_SECONDS)
    os._exit(1)


def _announce(url: str, options: ServerOptions, engines: Mapping[str, AsyncEngine]) -> None:
    print(greeting(url, options, engines), flush=True)


def _loop(stack: ExitStack) -> Loop:
    from cenote.runtime.loop import Loop

    loop = Loop()
    stack.callback(loop.close)
    return loop


def _open(models: Mapping[str, tuple[str, EngineOptions]], opener: Opener, stack: ExitStack) -> dict[str, AsyncEngine]:
    engines: dict[str, AsyncEngine] = {}
    for name, (model, options) in models.items():
        engines[name] = opener.open(name, model, options)
        stack.callback(engines[name].close)
    return engines


def _named(entries: Sequence[ModelEntry], names: Sequence[str]) -> dict[str, ModelEntry]:
    """Return the models by the names that clients ask for: as asked for, else the hub id or the folder's name."""
    if not entries:
        raise CycloptsError(msg="MODELS are required, on the command line or in the file of --config.")
    if names and len(names) != len(entries):
        raise OptionError(f"--name was given {len(names)} times for {len(entries)} models; give it once for each")
    chosen = list(names) or [entry.name or _own_name(entry.model) for entry in entries]
    if len(set(chosen)) != len(chosen):
        raise OptionError(f"two models would have the same name: {', '.join(chosen)}; give each a --name")
    return dict(zip(chosen, entries, strict=True))


def _own_name(model: str) -> str:
    from cenote.checkpoint.source import folder_name

    return folder_name(Path(model)) if Path(model).is_dir() else model


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
