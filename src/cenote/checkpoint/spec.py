"""What a checkpoint says about itself: frozen facts, read once, torch-free.

`ModelSpec` holds one optional part for each task; a part that is there is a task that the model offers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cenote.params import Task

PoolingMode = Literal["cls", "last", "mean", "max", "mean_sqrt_len", "weighted_mean"]
PromptFamily = Literal["qwen3-reranker", "mxbai-rerank-v2", "bge-reranker-v2-gemma", "chat-template"]


@dataclass(frozen=True, kw_only=True)
class TensorSource:
    """Where a small module keeps its weights: a `.safetensors`, `.bin` or `.pt` file and the key prefix in it."""

    path: Path
    prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class DenseSpec:
    """One linear module behind the pooling: `activation(x W^T + b)`. `activation` is a class name of `torch.nn`."""

    in_features: int
    out_features: int
    bias: bool
    activation: str
    weights: TensorSource


@dataclass(frozen=True, kw_only=True)
class EmbedSpec:
    """Dense embedding: `modes` are pooled and joined in this order, then `dense`, then L2 where `normalize`.

    `matryoshka` lists the sizes that the checkpoint was trained for; an empty tuple means trained for any size;
    `None` means that its files do not say. `include_prompt=False` leaves the prompt's tokens out of the pooling.
    `default_dimensions` is the size that the checkpoint's own files ask for where a request asks for none
    (sentence-transformers' `truncate_dim`).
    """

    modes: tuple[PoolingMode, ...]
    include_prompt: bool = True
    dense: tuple[DenseSpec, ...] = ()
    normalize: bool = False
    matryoshka: tuple[int, ...] | None = None
    default_dimensions: int | None = None
    dimensions: int
    """Output width D before any cut."""


@dataclass(frozen=True, kw_only=True)
class SpladeSpec:
    """Sparse embedding of vocabulary size from a masked-language head: `pooling` over `log1p(activation(logits))`.

    `skip_token_ids` are left out of the pooling where the checkpoint's own files say so.
    `activation` is a chain that sentence-transformers names `relu` or `log1p_relu`.
    """

    pooling: Literal["max", "sum"]
    activation: Literal["relu", "log1p_relu"] = "relu"
    skip_first_token_id: int | None = None
    skip_last_token_id: int | None = None
    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class LexicalSpec:
    """BGE-M3's lexical weights: `relu(linear(hidden))` per token, maximum over repeated ids, no special tokens."""

    linear: TensorSource
    skip_token_ids: tuple[int, ...]
    bos_token_id: int
    eos_token_id: int
    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class MultiVectorSpec:
    """Multi-vector embedding: `dense` on every token, L2 where `normalize`, then rows left out by these rules.

    `dense` empty and `linear` set means one linear layer stored in the checkpoint (HF_ColBERT, BGE-M3).
    `drop_first` leaves out row 0 (BGE-M3's BOS). `skiplist_token_ids` are document tokens that are read but not given.
    """

    dense: tuple[DenseSpec, ...] = ()
    linear: TensorSource | None = None
    normalize: bool = True
    drop_first: bool = False
    skiplist_token_ids: tuple[int, ...] = ()
    dimensions: int


@dataclass(frozen=True, kw_only=True)
class ClassifySpec:
    """Labels, relevance score or reward of a whole text.

    `activation` is `"identity"`, `"sigmoid"`, `"softmax"`, `"auto"` (sigmoid for one column, softmax for more) or a
    class name of `torch.nn`. `kind` says what the numbers are for. `yes_token_id`/`no_token_id` are set where the score
    is the difference of two rows of the vocabulary head of a causal model; without `no_token_id` it is one row.
    Tokens `pad_token_id` at a text's end are not read: transformers scores the last other token of a causal model.
    `prompt_family` names the prompt that an LLM reranker was trained with, where that is known.
    """

    kind: Literal["classifier", "cross_encoder", "reward", "llm_reranker"]
    num_labels: int
    labels: tuple[str, ...]
    activation: str
    use_activation: bool = True
    logit_mean: float = 0.0
    logit_sigma: float = 1.0
    yes_token_id: int | None = None
    no_token_id: int | None = None
    pad_token_id: int | None = None
    prompt_family: PromptFamily | None = None

    @property
    def scores_pairs(self) -> bool:
        """Whether its number says how well a document answers a query."""
        return self.num_labels == 1 and self.kind != "reward"


@dataclass(frozen=True, kw_only=True)
class TokenClassifySpec:
    """Labels for each token, or rewards for each step where `step_tag_id` is set."""

    kind: Literal["token_labels", "process_reward", "lexical"]
    num_labels: int
    labels: tuple[str, ...]
    activation: str
    use_activation: bool = True
    step_tag_id: int | None = None
    returned_token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ExpansionSpec:
    """ColBERT's two encodings of a text. Markers are token ids put after the first special token, prompts are strings.

    A query is cut to `query_length` and a document to `document_length` tokens, special tokens and marker included;
    `None` means the model's own limit. Where `expand_queries`, a shorter query is then filled up with `mask_token_id`
    to `fill_length`; other tokens attend to the fill only where `attend_to_expansion`.
    """

    query_marker_id: int | None = None
    document_marker_id: int | None = None
    query_length: int | None = None
    document_length: int | None = None
    expand_queries: bool = False
    fill_length: int | None = None
    mask_token_id: int | None = None
    attend_to_expansion: bool = False


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """How strings become token ids: `max_length` counts every token, special ones included."""

    tokenizer_folder: Path
    max_length: int
    max_length_reason: str
    do_lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    uses_token_types: bool = False
    expansion: ExpansionSpec | None = None
    chat_template: str | None = None
    """The checkpoint's own template as Jinja source."""
    pair_prompt: PromptFamily | None = None
    """The prompt that a query and a document are written into, set where a language model reads pairs."""
    prefers_pair_prompt: bool = False
    """`pair_prompt` comes before a chat template that takes pairs, since the user named it."""


@dataclass(frozen=True, kw_only=True)
class ListwiseSpec:
    """A listwise reranker (jina-reranker-v3): one prompt holds many documents and the query.

    `token_embed` then gives one row for each `document_token_id`, then one for each `query_token_id`. A prompt holds
    at most `max_documents`, each cut to `max_document_length` tokens, and the query cut to `max_query_length`.
    """

    document_token_id: int
    query_token_id: int
    max_documents: int
    max_document_length: int
    max_query_length: int


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that was recognised, and what it was read from, for `cenote inspect`."""

    what: str
    value: str
    source: str


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Everything that Cenote knows about a checkpoint before it loads a weight."""

    name: str
    folder: Path
    """The folder that holds `config.json` and the backbone's weights (a `0_Transformer` subfolder for some)."""
    root: Path
    """The folder that was asked for, with `modules.json` where there is one."""
    revision: str | None = None
    config: Mapping[str, Any]
    """`config.json` as transformers' own class of this family takes it: hub spellings translated, no `auto_map`."""
    model_type: str
    architecture: str
    hidden_size: int
    vocab_size: int
    is_causal: bool
    weight_files: tuple[Path, ...]
    text: TextSpec
    embed: EmbedSpec | None = None
    embed_sparse: SpladeSpec | LexicalSpec | None = None
    token_embed: MultiVectorSpec | None = None
    classify: ClassifySpec | None = None
    token_classify: TokenClassifySpec | None = None
    listwise: ListwiseSpec | None = None
    facts: tuple[Fact, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that this checkpoint offers, in the order of `cenote.params.TASKS`."""
        parts: dict[Task, object | None] = {
            "embed": self.embed,
            "embed_sparse": self.embed_sparse,
            "token_embed": self.token_embed,
            "classify": self.classify,
            "token_classify": self.token_classify,
        }
        return tuple(task for task, part in parts.items() if part is not None)
