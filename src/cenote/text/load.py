"""A tokenizer folder -> the fast tokenizer in it, with the settings that Cenote needs. Free of torch."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from cenote.checkpoint.spec import TextSpec
from cenote.errors import CheckpointError
from cenote.text.classes import Declaration, choose_class
from cenote.text.options import TruncationSide

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedTokenizer:
    """`backend` encodes and has neither truncation nor padding set; `hf` is the object around it, used for decoding and
    chat templates only: calling it would change the settings of the shared `backend`.
    """

    backend: Tokenizer
    hf: Any
    special_ids: frozenset[int]
    gives_token_types: bool
    truncation_side: TruncationSide
    converted: bool
    """There was no `tokenizer.json`; it was made from the older files."""


def load_tokenizer(spec: TextSpec) -> LoadedTokenizer:
    """Load the folder's tokenizer as `AutoTokenizer` would. Raise `CheckpointError` where that cannot be done."""
    folder = spec.tokenizer_folder
    converted = not (folder / "tokenizer.json").is_file()
    if converted:
        _log.warning("%s has no tokenizer.json: converting its older tokenizer files", folder)
    hf = _from_folder(folder)
    backend = getattr(hf, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise CheckpointError(
            f"the tokenizer class {type(hf).__name__} of {folder} has no fast form: save the tokenizer with"
            " transformers as a tokenizer.json and put that file into the folder"
        )
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = hf.split_special_tokens
    if spec.do_lower_case:
        _lower_case(backend)
    return LoadedTokenizer(
        backend=backend,
        hf=hf,
        special_ids=frozenset(hf.all_special_ids),
        gives_token_types="token_type_ids" in hf.model_input_names,
        truncation_side="left" if hf.truncation_side == "left" else "right",
        converted=converted,
    )


def _from_folder(folder: Path) -> Any:
    if not folder.is_dir():
        raise CheckpointError(f"there is no tokenizer folder {folder}")
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    config = _read_json(folder / "config.json")
    declared = Declaration(
        model_type=config.get("model_type"),
        tokenizer_config_class=tokenizer_config.get("tokenizer_class"),
        config_class=config.get("tokenizer_class"),
        is_byte_level=_mentions_byte_level(folder / "tokenizer.json"),
        has_own_code=_names_own_code(tokenizer_config.get("auto_map")),
    )
    tokenizer_class = choose_class(declared)
    try:
        return tokenizer_class.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the loaders raise whatever their parsers raise, plain Exception among it
        raise CheckpointError(
            f"the tokenizer in {folder} cannot be loaded ({type(error).__name__}: {error}). The folder needs a readable"
            " tokenizer.json; older files (vocab.txt, vocab.json with merges.txt, *.model) are converted, *.model only"
            " with the package `sentencepiece` or `protobuf` installed"
        ) from error


def _lower_case(backend: Tokenizer) -> None:
    """Lower-case the text before the tokenizer's own normaliser, which stays; special tokens are matched before it.

    Source: `do_lower_case` of sentence-transformers 6.2's `Transformer`.
    """
    own = backend.normalizer
    first = normalizers.Lowercase()
    backend.normalizer = first if own is None else normalizers.Sequence([first, own])


def _mentions_byte_level(path: Path) -> bool:
    return path.is_file() and b'"ByteLevel"' in path.read_bytes()


def _names_own_code(auto_map: object) -> bool:
    """The old form of `auto_map` is a list of tokenizer classes, the newer one maps `AutoTokenizer` to it."""
    return isinstance(auto_map, list) or (isinstance(auto_map, dict) and bool(auto_map.get("AutoTokenizer")))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} should hold a JSON object")
    return content
