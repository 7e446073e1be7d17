"""What vLLM was asked, of which checkpoints: `python tests/vllm_cases.py FOLDER [CASE ...]` writes both down for it.

Then `benchmarks/vllm_witness.py` runs in vLLM's own environment and answers; docs/vllm.md has the commands.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tiny import HIDDEN_SIZE
from vllm_asks import (
    BERT_IDS,
    CASSETTE_IDS,
    DECODER_IDS,
    DOCUMENTS,
    LISTWISE_TEXTS,
    QUERY,
    RAW,
    ROBERTA_IDS,
    STEP_IDS,
    UNPADDED_IDS,
    Ask,
    Case,
    bge_m3_case,
    cassette,
    classify,
    cross_encoder,
    dense,
    differing,
    embed,
    reranker,
    splade_case,
    token_embed,
)
from vllm_checkpoints import (
    DECODER,
    ENCODER,
    STEP_TAG_ID,
    dense_module,
    fingerprint,
    listwise,
    plain,
    read_config,
    reward_model,
    splade,
    stanford_colbert,
    with_config,
    with_modules,
)

MATRYOSHKA = {
    "cut": Ask(task="embed", token_ids=BERT_IDS, params={"dimensions": 16}, kind="unit"),
    "cut_raw": Ask(task="embed", token_ids=BERT_IDS, params={"dimensions": 16, "use_activation": False}),
}
COSINE = {"score": Ask(task="embed", method="score", query=QUERY, texts=DOCUMENTS, kind="unit")}
ABSOLUTE = {"position_embedding_type": "absolute"}
"""What configurations had before transformers 5, which leaves it out."""
STEPS = {
    "default": Ask(task="token_classify", token_ids=STEP_IDS, kind="unit"),
    "raw": Ask(task="token_classify", token_ids=STEP_IDS, params=RAW),
    "columns": Ask(task="token_classify", token_ids=STEP_IDS, params={"returned_token_ids": [1, 0]}, kind="unit"),
    "tag": Ask(task="token_classify", token_ids=STEP_IDS, params={"step_tag_id": 11}, kind="unit"),
}

CASES: dict[str, Case] = {
    "bert_cls": dense("bert", BERT_IDS, ENCODER, pooling_mode="cls"),
    "bert_mean_matryoshka": Case(
        build=with_modules("bert", ENCODER | {"matryoshka_dimensions": [16, 32, 64]}, normalize=True),
        asks=embed(BERT_IDS, kind="unit") | MATRYOSHKA | COSINE,
    ),
    "bert_mean_without_normalize": dense("bert", BERT_IDS, ENCODER, normalize=False),
    "bert_dense_tanh": dense("bert", BERT_IDS, ENCODER, dense=dense_module("Tanh")),
    "bert_two_modes": differing("bert", pooling_mode=("cls", "mean")),
    "bert_weighted_mean": differing("bert", pooling_mode="weightedmean"),
    "roberta_cls": dense("roberta", ROBERTA_IDS, ENCODER, pooling_mode="cls"),
    "xlm_roberta_cls": dense("xlm-roberta", ROBERTA_IDS, ENCODER | ABSOLUTE, pooling_mode="cls"),
    "xlm_roberta_mean": dense("xlm-roberta", ROBERTA_IDS, ENCODER | ABSOLUTE),
    "xlm_roberta_as_saved": dense("xlm-roberta", ROBERTA_IDS, ENCODER),
    "modernbert_mean": dense("modernbert", BERT_IDS, ENCODER),
    "nomic_bert_mean": dense("nomic_bert", BERT_IDS, ENCODER),
    "gte_cls": dense("gte", ROBERTA_IDS, ENCODER, pooling_mode="cls"),
    "eurobert_mean": dense("eurobert", ROBERTA_IDS, ENCODER | {"num_key_value_heads": 1}),
    "jina_v3_mean": dense("jina_embeddings_v3", ROBERTA_IDS, ENCODER),
    "qwen2_bidirectional_mean": dense("qwen2_bidirectional", DECODER_IDS, DECODER),
    "gemma2_last": dense("gemma2", DECODER_IDS, DECODER, pooling_mode="lasttoken"),
    "qwen3_last": dense("qwen3", DECODER_IDS, DECODER, pooling_mode="lasttoken"),
    "llama_last": dense("llama", DECODER_IDS, DECODER, pooling_mode="lasttoken"),
    "mistral_last": dense("mistral", DECODER_IDS, DECODER, pooling_mode="lasttoken"),
    "gemma3_mean": dense("gemma3_text_bidirectional", DECODER_IDS, DECODER),
    "bert_token_embed": token_embed("bert", BERT_IDS[:2], ENCODER),
    "qwen3_token_embed": token_embed(
        "qwen3", DECODER_IDS, DECODER, max_num_batched_tokens=8, enable_chunked_prefill=True
    ),
    "bert_token_classify": Case(
        build=plain("bert", head="token_classification", **ENCODER), asks=classify(BERT_IDS, "token_classify")
    ),
    "bert_classify": Case(build=plain("bert", head="sequence_classification", **ENCODER), asks=classify(BERT_IDS)),
    "bert_multi_label": Case(
        build=plain("bert", head="sequence_classification", problem_type="multi_label_classification", **ENCODER),
        asks=classify(BERT_IDS),
    ),
    "bert_sigmoid_of_three": Case(
        build=with_config(
            plain("bert", head="sequence_classification", **ENCODER),
            sbert_ce_default_activation_function="torch.nn.modules.activation.Sigmoid",
        ),
        asks={
            "default": Ask(task="classify", token_ids=BERT_IDS, differs=True),
            "raw": Ask(task="classify", token_ids=BERT_IDS, params=RAW),
        },
    ),
    "qwen3_one_logit": Case(
        build=plain("qwen3", head="sequence_classification", num_labels=1, **DECODER),
        asks={
            "default": Ask(task="classify", token_ids=UNPADDED_IDS, differs=True),
            "raw": Ask(task="classify", token_ids=UNPADDED_IDS, params=RAW),
        },
    ),
    "bert_cross_encoder": cross_encoder("bert"),
    "roberta_cross_encoder": cross_encoder("roberta"),
    "xlm_roberta_cross_encoder": cross_encoder("xlm-roberta"),
    "modernbert_cross_encoder": cross_encoder("modernbert"),
    "qwen2_process_reward": Case(
        build=reward_model("Qwen2ForProcessRewardModel", 2),
        asks=STEPS,
        vllm={"pooler_config": {"step_tag_id": STEP_TAG_ID, "tok_pooling_type": "STEP"}},
    ),
    "qwen2_reward": Case(
        build=reward_model("Qwen2ForRewardModel", 1),
        asks={"tokens": Ask(task="token_classify", token_ids=DECODER_IDS)},
    ),
    "bge_m3_dense": bge_m3_case("embed", "unit", other=Ask(task="token_embed", token_ids=ROBERTA_IDS)),
    "bge_m3_colbert": bge_m3_case("token_embed", "unit"),
    "bge_m3_lexical": bge_m3_case("token_classify"),
    "splade": splade_case(splade(decoder=True)),
    "splade_without_marks": splade_case(splade(decoder=True, skip_marks=True)),
    "splade_as_saved": splade_case(splade(decoder=False)),
    "splade_real": splade_case(cassette, CASSETTE_IDS),
    "colbert": Case(
        build=stanford_colbert,
        asks={
            "tokens": Ask(task="token_embed", token_ids=BERT_IDS[:2], kind="unit"),
            "score": Ask(task="token_embed", method="max_sim", query=QUERY, texts=DOCUMENTS),
        },
    ),
    "qwen3_reranker": reranker(
        "qwen3", "Qwen3ForSequenceClassification", ["no", "yes"], is_original_qwen3_reranker=True
    ),
    "mxbai_rerank_v2": reranker("qwen2", "Qwen2ForSequenceClassification", ["0", "1"], method="from_2_way_softmax"),
    "bge_reranker_gemma": reranker("gemma", "GemmaForSequenceClassification", ["Yes"], method="no_post_processing"),
    "jina_reranker_v3": Case(
        build=listwise,
        asks={
            "rows": Ask(task="token_embed", texts=LISTWISE_TEXTS),
            "score": Ask(task="token_embed", method="score", query=QUERY, texts=DOCUMENTS, kind="unit"),
        },
        vllm={"max_model_len": 512},
    ),
    "distilbert": dense("distilbert", BERT_IDS, {"n_heads": 2}),
    "electra": dense("electra", BERT_IDS, ENCODER | {"embedding_size": HIDDEN_SIZE}),
    "electra_narrow": dense("electra", BERT_IDS, ENCODER),
    "mpnet": dense("mpnet", ROBERTA_IDS, ENCODER),
    "t5": dense("t5", [[11, 12, 1]], {"num_heads": 2, "d_kv": 32}),
    "deberta_cross_encoder": cross_encoder("deberta-v2"),
    "distilbert_splade": splade_case(plain("distilbert", head="masked_lm", n_heads=2)),
}


def write_case(name: str, folder: Path) -> None:
    """Write the checkpoint of a case and what vLLM is to be asked into `folder`."""
    case = CASES[name]
    checkpoint = case.build(folder / name)
    asks = {
        key: {
            "token_ids": ask.token_ids,
            "task": ask.vllm_task or ask.task,
            "params": dict(ask.params),
            "texts": list(ask.texts),
            "query": ask.query,
        }
        for key, ask in case.asks.items()
    }
    facts = {"config": read_config(checkpoint), "fingerprint": [float(f"{x:.7g}") for x in fingerprint(checkpoint)]}
    content = {"case": name, "vllm": dict(case.vllm), "asks": asks, "checkpoint": facts}
    (folder / f"{name}.json").write_text(json.dumps(content))


def main(folder: Path, names: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or CASES:
        write_case(name, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
