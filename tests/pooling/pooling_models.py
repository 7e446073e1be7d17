"""A checkpoint folder to the answers of its poolers, by the shortest way: no queue, no staging, no text layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cenote.checkpoint import ModelSpec, read_checkpoint
from cenote.models.batch import pack
from cenote.models.load import LoadedModel, load_model
from cenote.params import PoolingParams, Task
from cenote.pooling.build import build_pooler
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.metadata import PoolingMetadata, PoolingStates, build_pooling_cursor
from cenote.pooling.output import pack_outputs

CPU = torch.device("cpu")
Wish = Mapping[Task, PoolingParams]


@dataclass(frozen=True)
class Served:
    """A model and its poolers."""

    spec: ModelSpec
    model: LoadedModel
    pooler: DispatchPooler

    def run(self, texts: Sequence[Sequence[int]], wishes: Sequence[Wish], num_keys: Sequence[int] | None = None) -> Any:
        """Return `{task: answer}` of each text from one packed pass."""
        batch = pack(texts, device=CPU, position_offset=self.model.position_offset, num_keys=num_keys)
        ids = [np.array(text, dtype=np.int64) for text in texts]
        lens = batch.seq_lens_np
        cursor = build_pooling_cursor(lens, lens, lens, CPU, batch.cu_seqlens)
        metadata = PoolingMetadata(
            prompt_lens=cursor.prompt_lens_cpu,
            params_by_task=wishes,
            token_ids_np=ids,
            pooling_states=[PoolingStates() for _ in texts],
            pooling_cursor=cursor,
        )
        with torch.inference_mode():
            flat = pack_outputs(self.pooler(self.model.backbone(batch), metadata))
        host = {dtype: buffer.numpy() for dtype, buffer in flat.buffers.items()}
        answers: list[dict[Task, Any]] = [{} for _ in texts]
        for entry in flat.entries:
            params = wishes[entry.sequence][entry.task]
            answers[entry.sequence][entry.task] = self.pooler.finish(
                entry.task, entry.view(host), ids[entry.sequence], params
            )
        return answers

    def run_task(self, task: Task, texts: Sequence[Sequence[int]], **params: Any) -> list[Any]:
        """Return each text's answer for one task with the same params."""
        wish = {task: PoolingParams(task=task, **params)}
        return [answer[task] for answer in self.run(texts, [wish] * len(texts))]


def serve(folder: Path, *, dtype: torch.dtype = torch.float32, **options: Any) -> Served:
    """Load a checkpoint; `options` go to `read_checkpoint`."""
    return serve_spec(read_checkpoint(folder, **options), dtype=dtype)


def serve_spec(
    spec: ModelSpec, *, dtype: torch.dtype = torch.float32, device: torch.device = CPU, **parts: Any
) -> Served:
    """Load what a spec says, with some of its parts replaced."""
    spec = replace(spec, **parts)
    model = load_model(spec, dtype=dtype, device=device)
    return Served(spec, model, build_pooler(spec, model))
