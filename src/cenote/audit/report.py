"""The outcome of an audit, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

from cenote.audit.finding import Finding
from cenote.audit.known import Known


@dataclass(frozen=True, kw_only=True)
class Report:
    """`findings` are faults, `known` are those that are listed with a reason, `steps` names everything that ran."""

    name: str
    steps: tuple[str, ...]
    findings: tuple[Finding, ...]
    known: tuple[tuple[Finding, Known], ...]

    @classmethod
    def of(cls, name: str, steps: Many[str], findings: Many[Finding], listed: Many[Known]) -> Report:
        """Sort out the findings that are listed."""
        covered = {finding: next((each for each in listed if each.covers(finding)), None) for finding in findings}
        return cls(
            name=name,
            steps=tuple(steps),
            findings=tuple(finding for finding, entry in covered.items() if entry is None),
            known=tuple((finding, entry) for finding, entry in covered.items() if entry is not None),
        )

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "name": self.name,
            "clean": self.is_clean,
            "findings": [finding.as_dict() for finding in self.findings],
            "known": [
                {**finding.as_dict(), "known_reason": entry.reason, "origin": entry.origin}
                for finding, entry in self.known
            ],
            "steps": list(self.steps),
        }

    def as_text(self) -> str:
        """Return the report in lines for a terminal."""
        lines: list[str] = []
        for finding in self.findings:
            lines += [*_lines(finding), f"  cure: {finding.cure}", ""]
        for finding, entry in self.known:
            lines += [*_lines(finding), f"  known: {entry.reason} ({entry.origin})", ""]
        outcome = f"{self.name}: {len(self.findings)} findings, {len(self.known)} known, in {len(self.steps)} steps"
        return "\n".join([*lines, outcome]) + "\n"


def _lines(finding: Finding) -> list[str]:
    place = finding.place
    detail = f" ({finding.detail})" if finding.detail else ""
    return [
        f"{place.file}:{place.line} in {place.function}",
        f"  {finding.kind}: {finding.operation}{detail}",
        f"  why: {finding.reason}",
    ]
