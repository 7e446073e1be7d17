"""The API dialects, one file each, with a page `docs/api/<name>.md` and a test `tests/server/test_server_<name>.py`."""

from cenote.server.dialect import Dialect
from cenote.server.dialects.openai import OPENAI
from cenote.server.dialects.vllm import VLLM

DIALECTS: tuple[Dialect, ...] = (OPENAI, VLLM)
"""Where several share a bare path and the body has no mark, the first one answers."""
DEFAULT_DIALECT = OPENAI
"""Whose words an error has where no dialect's route was met."""
