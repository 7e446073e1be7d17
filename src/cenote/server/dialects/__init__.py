"""The API dialects, one file each, with a page `docs/api/<name>.md` and a test `tests/server/test_server_<name>.py`."""

from cenote.server.dialect import Dialect
from cenote.server.dialects.cohere import COHERE
from cenote.server.dialects.encode import ENCODE
from cenote.server.dialects.jina import JINA
from cenote.server.dialects.openai import OPENAI
from cenote.server.dialects.tei import TEI
from cenote.server.dialects.vllm import VLLM
from cenote.server.dialects.voyage import VOYAGE

DIALECTS: tuple[Dialect, ...] = (OPENAI, COHERE, TEI, JINA, VOYAGE, ENCODE, VLLM)
"""Where several share a bare path and the body has no mark, the first one answers."""
DEFAULT_DIALECT = OPENAI
"""Whose words an error has where no dialect's route was met."""
