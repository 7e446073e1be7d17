"""The newest version of a client that others here hold back: its tests once more, in a process that finds it first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from serving import Server

NEWEST = Path(sys.prefix) / "newest"
PINS = Path(__file__).resolve().parents[2] / "constraints-clients-newest.txt"
TESTS = Path(__file__).with_name("test_clients_cohere.py")


def test_newest_cohere(server: Server) -> None:
    command = [sys.executable, "-m", "pytest", str(TESTS), "--server", server.url]
    own = {"PYTHONPATH": str(NEWEST)}
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (pinned,) = re.findall(r"^cohere==(.+)$", PINS.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"cohere-{pinned}," in done.stdout
    assert re.search(r"^=+ \d+ passed in", done.stdout, re.MULTILINE), done.stdout
