"""One request before a load, so that what is wrong with an address, a key or a name is said in words."""

from __future__ import annotations

import asyncio

import orjson

from cenote.bench.connection import FAILURES, Answer, Connection, Target
from cenote.errors import CenoteError

_HINTS = {
    401: "give the key with --api-key",
    403: "give the key with --api-key",
    404: "is it the route (mostly .../v1/embeddings), and does the server know the model by that name?",
    405: "is it the route (mostly .../v1/embeddings)?",
}


def probe(target: Target, url: str, body: bytes) -> None:
    """Send one embedding request. Raises `CenoteError` where the answer is not what OpenAI's route gives."""
    try:
        answer = asyncio.run(_ask(target, body))
    except TimeoutError:
        raise CenoteError(f"{url} did not answer in time") from None
    except OSError as error:
        raise CenoteError(f"no server answers at {url}: {error}") from None
    except FAILURES as error:
        raise CenoteError(f"{url} does not answer as an HTTP server does: {type(error).__name__}: {error}") from None
    if answer.status != 200:
        hint = _HINTS.get(answer.status)
        raise CenoteError(f"{url} answered {answer.status}: {_message(answer)}" + (f" ({hint})" if hint else ""))
    if not _is_embedding(answer):
        raise CenoteError(f"{url} does not answer as OpenAI's embeddings route does: there is no data[0].embedding")


async def _ask(target: Target, body: bytes) -> Answer:
    connection = Connection(target)
    try:
        return await connection.post(body)
    finally:
        connection.close()


def _message(answer: Answer) -> str:
    """Return what the server says is wrong, out of its JSON if that has the usual form."""
    try:
        said = orjson.loads(answer.body)
        error = said.get("error", said)
        return str(error if isinstance(error, str) else error.get("message") or error["detail"])
    except (orjson.JSONDecodeError, AttributeError, KeyError):
        return answer.body[:200].decode("utf-8", "replace") or "nothing"


def _is_embedding(answer: Answer) -> bool:
    try:
        return bool(orjson.loads(answer.body)["data"][0]["embedding"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False
