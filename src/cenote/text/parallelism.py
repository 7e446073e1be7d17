"""How many threads the tokenizers take."""

from __future__ import annotations

import os


def allow_parallelism() -> None:
    """Let the Rust tokenizers use all cores, unless the environment says otherwise.

    A forked child must not: it would wait for threads that it does not have. Set explicitly, they do not warn either.
    """
    if "TOKENIZERS_PARALLELISM" not in os.environ:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        os.register_at_fork(after_in_child=_stay_serial)


def _stay_serial() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
