"""The `cenote` command: one file for each verb. A verb imports what is heavy when it runs, so that `--help` is quick.

Exit codes: 0 done, 1 it could not be done, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from cyclopts import App, CycloptsError

from cenote import __version__
from cenote.cli.audit import audit
from cenote.cli.bench import bench
from cenote.cli.classify import classify
from cenote.cli.embed import embed
from cenote.cli.inspect import inspect
from cenote.cli.rerank import rerank
from cenote.cli.reward import reward
from cenote.cli.serve import serve
from cenote.cli.token_classify import token_classify
from cenote.cli.verify import verify
from cenote.errors import CenoteError

VERBS: tuple[Callable[..., None], ...] = (
    *(serve, embed, rerank, classify, token_classify, reward),
    *(inspect, verify, audit, bench),
)
"""The verbs, in the order of the help. Each is a function in the file of its own name."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def build_app() -> App:
    """Return the command line."""
    app = App(
        name="cenote",
        version=__version__,
        help="Serve and run pooling models: text in; vectors, scores and labels out.",
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
    )
    for order, verb in enumerate(VERBS):
        app.command(verb, sort_key=order)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code; what went wrong is one line on stderr."""
    try:
        build_app()(list(arguments), exit_on_error=False, print_error=False, result_action="return_none")
        sys.stdout.flush()
    except CycloptsError as error:
        return _fail(f"{_one_line(str(error))} Try: cenote --help", EXIT_USAGE)
    except CenoteError as error:
        return _fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing may be written any more, not even by the interpreter at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except OSError as error:
        return _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    return 0


def _fail(message: str, code: int) -> int:
    print(f"cenote: error: {_one_line(message)}", file=sys.stderr)
    return code


def _one_line(message: str) -> str:
    return " ".join(message.split())
