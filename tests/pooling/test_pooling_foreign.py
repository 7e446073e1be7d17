"""A pooler as people write them for vLLM runs against these contracts without a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from pooling_batches import Step, hidden_rows, split
from torch import nn

from cenote.params import PoolingParamsUpdate
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.metadata import PoolingStates
from cenote.pooling.output import pack_outputs
from cenote.pooling.pooler import Pooler
from tolerances import assert_close

MARK = 4


class MarkedMeanPooler(Pooler):
    """The mean of the rows of one token, in the manner of vLLM's own poolers; only the import of `Pooler` is ours."""

    def get_supported_tasks(self) -> Any:
        return {"embed"}

    def get_pooling_updates(self, task: str) -> PoolingParamsUpdate:
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: Any) -> list[torch.Tensor | None]:
        cursor = pooling_metadata.get_pooling_cursor()
        chunks = torch.split(hidden_states, cursor.num_scheduled_tokens_cpu.tolist())
        pooled: list[torch.Tensor | None] = []
        for chunk, ids, finished, params in zip(
            chunks,
            pooling_metadata.get_prompt_token_ids_cpu(),
            cursor.get_finished_mask(),
            pooling_metadata.pooling_params,
            strict=True,
        ):
            if not finished:
                pooled.append(None)
                continue
            index = (ids == MARK).nonzero(as_tuple=True)[0].to(chunk.device, non_blocking=True)
            mean = chunk[index].float().mean(dim=0)
            pooled.append(mean if params.use_activation is False else nn.functional.normalize(mean, dim=-1))
        return pooled


def expected(rows: torch.Tensor, ids: Sequence[int], active: bool | None) -> torch.Tensor:
    mean = rows[[token == MARK for token in ids]].mean(0)
    return mean if active is False else mean / mean.norm()


IDS = [[4, 1, 4], [2, 4], [4, 4, 4, 1]]
LENGTHS = [3, 2, 4]
PARAMS: list[dict[str, Any]] = [{}, {"use_activation": False}, {"use_activation": True}]


def test_called_directly() -> None:
    rows = hidden_rows(LENGTHS)
    outputs = MarkedMeanPooler()(rows, Step(LENGTHS, token_ids=IDS, params=PARAMS).metadata())
    for mine, part, ids, params in zip(outputs, split(rows, LENGTHS), IDS, PARAMS, strict=True):
        assert mine is not None
        assert_close(mine, expected(part, ids, params.get("use_activation")))


def test_unfinished_texts_give_nothing() -> None:
    step = Step(LENGTHS, token_ids=IDS, params=PARAMS, prompt_lens=[3, 5, 4], seq_lens=[3, 2, 4])
    outputs = MarkedMeanPooler()(hidden_rows(LENGTHS), step.metadata())
    assert [output is None for output in outputs] == [False, True, False]


@pytest.mark.parametrize("chunked", [False, True])
def test_as_one_pooler_of_a_model(chunked: bool) -> None:
    dispatcher = DispatchPooler({"embed": MarkedMeanPooler()})
    assert dispatcher.get_pooling_updates("embed").requires_token_ids
    rows = hidden_rows(LENGTHS)
    states = [PoolingStates() for _ in LENGTHS]
    if chunked:
        first = torch.cat([part[:1] for part in split(rows, LENGTHS)])
        step = Step([1, 1, 1], token_ids=IDS, params=PARAMS, prompt_lens=LENGTHS, seq_lens=[1, 1, 1], states=states)
        assert pack_outputs(dispatcher(first, step.metadata())).entries == []
    rest = [part[int(chunked) :] for part in split(rows, LENGTHS)]
    lengths = [len(part) for part in rest]
    step = Step(lengths, token_ids=IDS, params=PARAMS, prompt_lens=LENGTHS, seq_lens=LENGTHS, states=states)
    flat = pack_outputs(dispatcher(torch.cat(rest), step.metadata()))
    host = {dtype: buffer.numpy() for dtype, buffer in flat.buffers.items()}
    for entry in flat.entries:
        part, params = split(rows, LENGTHS)[entry.sequence], PARAMS[entry.sequence]
        assert_close(entry.view(host), expected(part, IDS[entry.sequence], params.get("use_activation")))
