"""Reading a checkpoint must not cost the import of torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from cenote.checkpoint import locate, read_checkpoint
spec = read_checkpoint(locate(sys.argv[1]).folder)
loaded = [name for name in ("torch", "transformers", "safetensors.torch") if name in sys.modules]
print(spec.tasks[0], loaded)
"""


def test_reading_a_checkpoint_leaves_torch_alone(saved_chain: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(saved_chain)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "embed []"
