"""Places that are known to wait and cannot be cured here, each with its reason and where it is known from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from cenote.audit.finding import Finding

KNOWN_FILE = Path(__file__).with_name("known.toml")


@dataclass(frozen=True, kw_only=True)
class Known:
    """`file` is the end of the path, `function` the qualified name; line numbers move and are not compared."""

    file: str
    function: str
    operation: str
    reason: str
    origin: str

    def covers(self, finding: Finding) -> bool:
        place = finding.place
        return (
            Path(place.file).as_posix().endswith(self.file)
            and place.function == self.function
            and finding.operation == self.operation
        )


def read_known(path: Path = KNOWN_FILE) -> tuple[Known, ...]:
    """Read the list; an entry with a missing or an unknown key raises `TypeError`."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("known", [])
    return tuple(Known(**entry) for entry in entries)
