"""The answer where no operation was reached: an unknown route, a wrong method, a missing key."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response

from cenote.server.dialect import Dialect
from cenote.server.endpoint import choose
from cenote.server.failures import Failure
from cenote.server.paths import bare_paths, own_paths


class Refusals:
    """Writes failures in the words of the dialect that a path belongs to, by its route or else by its prefix."""

    def __init__(self, dialects: Iterable[Dialect], default: Dialect) -> None:
        """`default` is spoken where a path belongs to none."""
        dialects = tuple(dialects)
        self._default = default
        self._bare = {path: choose(offers, None).dialect for (_, path), offers in bare_paths(dialects).items()}
        self._prefixed = {dialect.name: dialect for dialect in dialects}
        self._exact = {
            f"/{dialect.name}{path}": offers[0].dialect
            for dialect in dialects
            for (_, path), offers in own_paths(dialect).items()
        }

    def __call__(self, path: str, failed: Failure) -> Response:
        """Return the answer for a request for `path`."""
        prefix = path.split("/", 2)[1] if path.count("/") > 1 else ""
        exact = self._exact.get(path) or self._prefixed.get(prefix)
        if exact is not None:
            return exact.refusal(failed, exact=True)
        return self._bare.get(path, self._default).refusal(failed, exact=False)
