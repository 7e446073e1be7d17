"""What vLLM's answers have in common."""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import BaseModel

from cenote.outputs import Usage
from cenote.server.dialect import Call


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
