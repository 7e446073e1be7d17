"""TEI's `GET /info`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from cenote import __version__
from cenote.checkpoint.spec import ModelSpec
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embedding import find_model

_POOLINGS = {"last": "last_token"}


class TeiInfo(BaseModel):
    """The served model, in TEI's words; what has no meaning here is `null`."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, dict[str, Any]]
    max_concurrent_requests: int | None
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int | None
    version: str
    sha: str | None
    docker_label: str | None


async def info(call: Call) -> Response:
    """Describe a served model, the first one where there are several and none is named."""
    name, engine = find_model(call, call.path.get("model", call.models.names[0]))
    known = engine.info
    (step_tokens,) = (int(each.value) for each in known.decisions if each.what == "step_tokens")
    facts = TeiInfo(
        model_id=known.name,
        model_sha=engine.spec.revision,
        model_dtype=known.dtype,
        served_model_name=name,
        model_type=_model_type(engine.spec),
        max_concurrent_requests=None,
        max_input_length=known.max_length,
        max_batch_tokens=step_tokens,
        max_batch_requests=None,
        max_client_batch_size=call.options.max_items,
        auto_truncate=True,
        tokenization_workers=None,
        version=__version__,
        sha=None,
        docker_label=None,
    )
    return json_response(facts.model_dump())


def _model_type(spec: ModelSpec) -> dict[str, dict[str, Any]]:
    if spec.classify is not None:
        return {"reranker" if spec.classify.num_labels == 1 else "classifier": _labels(spec.classify.labels)}
    if spec.embed is not None:
        return {"embedding": {"pooling": "+".join(_POOLINGS.get(mode, mode) for mode in spec.embed.modes)}}
    if spec.token_classify is not None:
        return {"classifier": _labels(spec.token_classify.labels)}
    return {"embedding": {"pooling": "splade" if spec.embed_sparse is not None else "none"}}


def _labels(names: Sequence[str]) -> dict[str, Any]:
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
