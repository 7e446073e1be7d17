"""One rerank request, as every dialect asks the engine for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from cenote.errors import InputError
from cenote.outputs import Ranking
from cenote.server.dialect import Call
from cenote.server.embedding import check_number, cut_length, find_model
from cenote.server.schemas import (
    ChatTemplate,
    ModelName,
    OfImages,
    Padding,
    Refused,
    RequestBody,
    Side,
    Truncate,
    TruncatePromptTokens,
    WholeOrDigits,
    agreed,
)
from cenote.text.options import TruncationSide
from cenote.text.unicode import scalar_text

Document = str | Mapping[str, Any]
RANK_WORDS = {"max_length": "truncate_prompt_tokens"}


@dataclass(frozen=True, kw_only=True)
class RankRequest:
    """A query and its documents: strings, or objects with a string `text`, or with `fields` that are read in turn."""

    model: str | None
    query: str
    documents: list[Any]
    top_n: int | None = None
    instruction: str | None = None
    max_tokens_per_query: int | None = None
    max_tokens_per_doc: int | None = None
    truncate_prompt_tokens: int | None = None
    truncate: bool | None = None
    truncation_side: TruncationSide | None = None
    raw_scores: bool = False
    fields: Sequence[str] | None = None


class PairBody(RequestBody):
    """What every route that scores queries and documents takes; most of it goes beyond the API of the route."""

    model: ModelName = None
    instruction: str | None = Field(None, description="For rerankers whose prompt has a place for it.")
    use_activation: bool | None = Field(None, description="false gives logits instead of scores.")
    max_tokens_per_query: WholeOrDigits | None = Field(None, description="Cut the query to so many tokens.")
    max_tokens_per_doc: WholeOrDigits | None = Field(None, description="Cut each document to so many tokens.")
    truncate_prompt_tokens: TruncatePromptTokens = None
    truncation_side: Side = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Only `instruction`, which goes first.")
    chat_template: ChatTemplate = None
    add_special_tokens: Annotated[Any, Refused("may only be true: a pair needs its special tokens", (True,))] = None
    padding: Padding = None
    mm_processor_kwargs: OfImages = None

    def asked_instruction(self) -> str | None:
        """Return the instruction, wherever it stands. Raises `InputError` for other values of the template."""
        values = self.chat_template_kwargs or {}
        instruction = values.get("instruction")
        if values.keys() - {"instruction"} or not isinstance(instruction, str | None):
            raise InputError(
                "`chat_template_kwargs` may have a string `instruction` and nothing else: rerankers read no more",
                param="chat_template_kwargs",
            )
        return self.instruction if instruction is None else instruction


class RankBody(PairBody):
    """What every rerank route takes. A route adds its documents and the fields that it calls otherwise."""

    query: str = Field(description="What the documents should be about.")
    raw_scores: bool | None = Field(None, description="Give logits instead of scores; use_activation the other way.")
    truncate: Truncate = None

    def request(self, documents: list[Any], top_n: int | None = None) -> RankRequest:
        """Return what these fields ask for; `dataclasses.replace` adds what a route's own fields do."""
        raw = None if self.use_activation is None else not self.use_activation
        return RankRequest(
            model=self.model,
            query=self.query,
            documents=documents,
            top_n=top_n,
            instruction=self.asked_instruction(),
            max_tokens_per_query=self.max_tokens_per_query,
            max_tokens_per_doc=self.max_tokens_per_doc,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            truncate=self.truncate,
            truncation_side=self.truncation_side,
            raw_scores=agreed(raw_scores=self.raw_scores, use_activation=raw) is True,
        )


async def rank(call: Call, request: RankRequest) -> tuple[str, Ranking]:
    """Rank the documents in one engine call; return the served model's name and the ranking, without documents."""
    name, engine = find_model(call, request.model)
    check_number(request.documents, "documents", call)
    ranking = await engine.rerank(
        request.query,
        _read(request.documents, request.fields),
        request.top_n,
        instruction=request.instruction,
        max_tokens_per_query=request.max_tokens_per_query,
        max_tokens_per_doc=request.max_tokens_per_doc,
        max_tokens=cut_length(request.truncate_prompt_tokens, engine.info),
        raw_scores=request.raw_scores,
        truncate=request.truncate is not False,
        truncation_side=request.truncation_side,
        return_documents=False,
    )
    call.record.add(ranking.usage)
    return name, ranking


def results_of(ranking: Ranking, documents: Sequence[Document] | None) -> list[dict[str, Any]]:
    """Return Cohere's and Jina's `results`, each with its document as an object where `documents` are given."""
    results: list[dict[str, Any]] = [{"index": each.index, "relevance_score": each.score} for each in ranking]
    if documents is not None:
        for result in results:
            result["document"] = _shown(documents[result["index"]])
    return results


def _shown(document: Document) -> dict[str, str]:
    """Return a document as an object of strings that JSON can write."""
    if isinstance(document, str):
        return {"text": scalar_text(document)}
    return {scalar_text(key): scalar_text(value) for key, value in document.items() if isinstance(value, str)}


def _read(documents: list[Any], fields: Sequence[str] | None) -> list[Any]:
    for index, document in enumerate(documents if isinstance(documents, list) else ()):
        if isinstance(document, Mapping) and document.get("image") is not None:
            raise InputError(
                f"documents[{index}] has an image, which is not read: give its text alone",
                param="documents",
                index=index,
            )
    if not fields:
        return documents
    return [_joined(document, fields, index) for index, document in enumerate(documents)]


def _joined(document: Any, fields: Sequence[str], index: int) -> Any:
    """Return the values of an object's `fields`, one a line."""
    if not isinstance(document, Mapping):
        return document
    values = [document[name] for name in fields if isinstance(document.get(name), str)]
    if not values:
        raise InputError(
            f"documents[{index}] has no string in any of the rank_fields {', '.join(fields)[:200]}",
            param="documents",
            index=index,
        )
    return "\n".join(values)
