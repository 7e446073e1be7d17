"""Answers as JSON; numpy arrays may be anywhere in them."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


def to_json(value: Any) -> bytes:
    """Return `value` as JSON."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def json_response(value: Any) -> Response:
    """Return the answer of a request that succeeded."""
    return Response(to_json(value), media_type="application/json")
