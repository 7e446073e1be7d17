"""What the text layer does to its process: no torch, no warnings about forks, safe from several threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from text_folders import CORPUS, FOLDERS, encoder_for

from cenote.text.encoder import EncodeOptions

_USE = """
import os, sys, warnings
from pathlib import Path
from cenote.checkpoint.spec import TextSpec
from cenote.text.encoder import EncodeOptions, PairOptions, TextEncoder

warnings.simplefilter("error")
for folder in sys.argv[1:]:
    spec = TextSpec(tokenizer_folder=Path(folder), max_length=64, max_length_reason="test", prompts={"query": "q "},
                    chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")
    encoder = TextEncoder(spec, vocab_size=2000, max_length=64)
    encoder.encode(["hello world", "fox"] * 50, EncodeOptions(input_type="query", offsets=True))
    encoder.encode_pairs("hello", ["world"])
    encoder.encode_chats([[{"role": "user", "content": "hello"}]])
    encoder.decode(encoder.tokenize("hello")[0])
assert "torch" not in sys.modules, "torch was imported"
"""

_FORK = """
import multiprocessing
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    child = os.fork()
if child == 0:
    encoder.encode(["hello world"] * 50)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def _run(code: str, folders: list[Path]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    command = [sys.executable, "-c", code, *map(str, folders)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_using_the_text_layer_leaves_torch_unimported(tokenizer_folder: Callable[[str], Path]) -> None:
    done = _run(_USE, [tokenizer_folder(name) for name in FOLDERS])
    assert done.returncode == 0, done.stderr


def test_a_forked_child_neither_hangs_nor_warns(tokenizer_folder: Callable[[str], Path]) -> None:
    done = _run(_USE + _FORK, [tokenizer_folder("bert_class")])
    assert done.returncode == 0, done.stderr
    assert "fork" not in done.stderr
    assert "parallelism" not in done.stderr


def test_threads_do_not_disturb_one_another(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("bert_class"), max_length=64)
    requests = [
        EncodeOptions(max_length=limit, truncation_side=side, prompt=prompt)
        for limit in (4, 9, 30)
        for side in ("left", "right")
        for prompt in ("", "hello ")
    ]
    expected = [[sequence.token_ids.tolist() for sequence in encoder.encode(CORPUS, options)] for options in requests]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda options: encoder.encode(CORPUS, options), requests * 10))
    for i, sequences in enumerate(results):
        assert [sequence.token_ids.tolist() for sequence in sequences] == expected[i % len(requests)]
