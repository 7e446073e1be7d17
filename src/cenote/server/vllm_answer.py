"""What vLLM's answers have in common: the head, and values as base64 or as a body of bytes."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.outputs import Usage
from cenote.server.answers import to_json
from cenote.server.dialect import Call
from cenote.server.encodings import Endianness, byte_order
from cenote.server.schemas import RequestBody

Values = npt.NDArray[np.generic]


class VllmUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: Literal[0] = 0
    prompt_tokens_details: None = None


class VllmAnswer(BaseModel):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    usage: VllmUsage


def answer_head(kind: str, name: str, call: Call, usage: Usage) -> dict[str, Any]:
    """Return an answer without its `data`; `kind` is the beginning of its id."""
    tokens = {"prompt_tokens": usage.total_tokens, "total_tokens": usage.total_tokens}
    return {
        "id": f"{kind}-{call.record.request_id}",
        "object": "list",
        "created": int(time.time()),
        "model": name,
        "usage": tokens | {"completion_tokens": 0, "prompt_tokens_details": None},
    }


class EncodingFields(RequestBody):
    """How values are written."""

    encoding_format: Literal["float", "base64", "bytes", "bytes_only"] | None = Field(
        None, description="JSON numbers (default), base64, or a body of bytes with or without a header `metadata`."
    )
    embed_dtype: Literal["float32", "float16"] | None = Field(None, description="Of base64 and bytes.")
    endianness: Endianness | None = Field(None, description="Of base64 and bytes; by default native.")

    @property
    def wants_bytes(self) -> bool:
        """Whether the answer is a body of bytes."""
        return self.encoding_format in ("bytes", "bytes_only")

    def typed(self, value: Values) -> npt.NDArray[Any]:
        """Return the values in the type and byte order that are asked for."""
        return value.astype(np.dtype(self.embed_dtype or "float32").newbyteorder(byte_order(self.endianness)))

    def written(self, value: Values) -> Values | str:
        """Return the values as they stand in JSON."""
        return value if self.encoding_format != "base64" else base64.b64encode(self.typed(value).tobytes()).decode()

    def bytes_response(self, head: dict[str, Any], values: Sequence[Values]) -> Response:
        """Return the values end to end, with a header that says where each lies unless they alone are wanted."""
        written = [self.typed(value) for value in values]
        content = b"".join(value.tobytes() for value in written)
        if self.encoding_format == "bytes_only":
            return Response(content, media_type="application/octet-stream")
        ends = np.cumsum([value.nbytes for value in written]).tolist()
        kind = {"embed_dtype": self.embed_dtype or "float32", "endianness": byte_order(self.endianness)}
        data = [
            {"index": i, **kind, "shape": list(value.shape), "start": end - value.nbytes, "end": end}
            for i, (value, end) in enumerate(zip(written, ends, strict=True))
        ]
        usage = {key: head["usage"][key] for key in ("prompt_tokens", "total_tokens")}
        metadata = {key: head[key] for key in ("id", "created", "model")} | {"data": data, "usage": usage}
        headers = {"metadata": to_json(metadata).decode("utf-8")}
        return Response(content, media_type="application/octet-stream", headers=headers)
