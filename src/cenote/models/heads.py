"""The heads of transformers' `*For...` models, taken out of them: which modules, and which rows they read.

A `*For...` forward is never called on a pack, since it would pool one row of the whole pack. Shape suffixes: B pooled
rows, N rows of tokens, H hidden, C labels, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel

from cenote.errors import CheckpointError

Rows = Literal["cls", "last", "mean"]


@dataclass(frozen=True, kw_only=True)
class SequenceClassifier:
    """How a text's labels come from its hidden states.

    `token_module` `[N, H] -> [N, H]`, where there is one, is applied to every token first; then `rows` are pooled to
    one row a text; then `module` `[B, H] -> [B, C]` runs in fp32.
    """

    rows: Rows
    module: nn.Module
    token_module: nn.Module | None = None


class FirstRow(nn.Module):
    """Feed pooled rows to a module that takes `[B, L, H]` and reads row 0 of each text."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, rows_BH: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.module(rows_BH[:, None])
        return output


class VocabularyScore(nn.Module):
    """One score a row from a causal model's vocabulary head: the logit of `yes_id`, less that of `no_id` if given.

    Only these rows of the head are kept, in fp32. `softcap` is the family's cap on logits.
    """

    def __init__(self, head: nn.Linear, yes_id: int, no_id: int | None, softcap: float | None) -> None:
        super().__init__()
        ids = [yes_id] if no_id is None else [yes_id, no_id]
        self.weight = nn.Parameter(torch.stack([head.weight[i] for i in ids]).float(), requires_grad=False)
        self.softcap = softcap

    def forward(self, rows_BH: torch.Tensor) -> torch.Tensor:
        logits = rows_BH @ self.weight.T
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits if logits.shape[1] == 1 else logits[:, :1] - logits[:, 1:]


class _DebertaMaskedLM(nn.Module):
    """DeBERTa's newer masked-language head, which multiplies by the word embeddings that it is handed."""

    def __init__(self, head: nn.Module, embeddings: nn.Module) -> None:
        super().__init__()
        self.head, self.embeddings = head, embeddings

    def forward(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(hidden_NH, self.embeddings)
        return logits


def sequence_classifier(model: PreTrainedModel, model_type: str) -> SequenceClassifier:
    """Take the head out of a `*ForSequenceClassification` model, in fp32."""
    classifier = _SEQUENCE_HEADS.get(model_type, _decoder_score)(model)
    token_module = classifier.token_module
    return SequenceClassifier(
        rows=classifier.rows,
        module=_in_float32(classifier.module),
        token_module=None if token_module is None else _in_float32(token_module),
    )


def token_classifier(model: PreTrainedModel, model_type: str) -> nn.Module:
    """Take the head `[N, H] -> [N, C]` out of a `*ForTokenClassification` model, in fp32."""
    if model_type == "modernbert":
        return _in_float32(nn.Sequential(model.head, model.classifier))
    return _in_float32(_module(model, "classifier", "score"))


def masked_lm_head(model: PreTrainedModel, model_type: str) -> nn.Module:
    """Take the head `[N, H] -> [N, V]` out of a `*ForMaskedLM` model, in the model's own dtype."""
    if model_type == "distilbert":
        return nn.Sequential(model.vocab_transform, model.activation, model.vocab_layer_norm, model.vocab_projector)
    if model_type == "electra":
        return nn.Sequential(model.generator_predictions, model.generator_lm_head)
    if model_type == "modernbert":
        return nn.Sequential(model.head, model.decoder)
    if model_type == "deberta-v2" and not model.config.legacy:
        return _DebertaMaskedLM(model.lm_predictions, model.deberta.embeddings.word_embeddings)
    return _module(model, "cls", "lm_head")


def vocabulary_score(model: PreTrainedModel, yes_id: int, no_id: int | None) -> SequenceClassifier:
    """Build the score of a `*ForCausalLM` reranker from the last row of a text; tied embeddings are honoured."""
    head: nn.Module | None = model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or getattr(head, "bias", None) is not None:
        raise CheckpointError(f"{type(model).__name__} has no plain vocabulary head to score with")
    softcap = getattr(model.config, "final_logit_softcapping", None)
    return SequenceClassifier(rows="last", module=VocabularyScore(head, yes_id, no_id, softcap))


def _in_float32(head: nn.Module) -> nn.Module:
    """Return `head` in fp32: itself, or a copy, since the model around it stays as it is."""
    if all(parameter.dtype == torch.float32 for parameter in head.parameters()):
        return head
    return copy.deepcopy(head).float()


def _module(model: PreTrainedModel, *names: str) -> nn.Module:
    for name in names:
        module = getattr(model, name, None)
        if isinstance(module, nn.Module):
            return module
    raise CheckpointError(f"{type(model).__name__} has none of the heads {', '.join(names)} that Cenote knows")


def _pooler_then_classifier(model: PreTrainedModel) -> SequenceClassifier:
    pooler = FirstRow(model.base_model.pooler)
    return SequenceClassifier(rows="cls", module=nn.Sequential(pooler, model.classifier))


def _own_pooler_then_classifier(model: PreTrainedModel) -> SequenceClassifier:
    return SequenceClassifier(rows="cls", module=nn.Sequential(FirstRow(model.pooler), model.classifier))


def _classifier_of_first_row(model: PreTrainedModel) -> SequenceClassifier:
    return SequenceClassifier(rows="cls", module=FirstRow(model.classifier))


def _distilbert(model: PreTrainedModel) -> SequenceClassifier:
    return SequenceClassifier(rows="cls", module=nn.Sequential(model.pre_classifier, nn.ReLU(), model.classifier))


def _modernbert(model: PreTrainedModel) -> SequenceClassifier:
    rows = _rows(model.config.classifier_pooling)
    return SequenceClassifier(rows=rows, module=nn.Sequential(model.head, model.classifier))


def _eurobert(model: PreTrainedModel) -> SequenceClassifier:
    transform = nn.Sequential(model.dense, model.activation)
    if model.config.classifier_pooling == "late":
        # The mean over tokens comes after the activation; the last layer is linear and may stay behind the mean.
        return SequenceClassifier(rows="mean", token_module=transform, module=model.classifier)
    return SequenceClassifier(
        rows=_rows(model.config.classifier_pooling), module=nn.Sequential(*transform, model.classifier)
    )


def _decoder_score(model: PreTrainedModel) -> SequenceClassifier:
    return SequenceClassifier(rows="last", module=_module(model, "score"))


def _rows(classifier_pooling: str) -> Rows:
    rows: dict[str, Rows] = {"cls": "cls", "bos": "cls", "mean": "mean"}
    if classifier_pooling not in rows:
        raise CheckpointError(f"config.json has classifier_pooling={classifier_pooling!r}, which Cenote does not know")
    return rows[classifier_pooling]


_SEQUENCE_HEADS: Mapping[str, Callable[[PreTrainedModel], SequenceClassifier]] = {
    "bert": _pooler_then_classifier,
    "nomic_bert": _pooler_then_classifier,
    "gte": _pooler_then_classifier,
    "deberta-v2": _own_pooler_then_classifier,
    "roberta": _classifier_of_first_row,
    "xlm-roberta": _classifier_of_first_row,
    "camembert": _classifier_of_first_row,
    "electra": _classifier_of_first_row,
    "mpnet": _classifier_of_first_row,
    "jina_embeddings_v3": _classifier_of_first_row,
    "distilbert": _distilbert,
    "modernbert": _modernbert,
    "eurobert": _eurobert,
}
"""What is not here is a decoder with transformers' generic `score`."""
