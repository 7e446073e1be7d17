"""What is noted about one HTTP request while it is answered."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.outputs import Usage

CLIENT_GONE_STATUS = 499
"""Never sent: the status under which a request counts whose client left before its answer."""


@dataclass(kw_only=True, slots=True)
class Record:
    """One request. `model` and `route` stay empty until a served model and a known route are recognised."""

    request_id: str
    model: str = ""
    route: str = ""
    status: int = CLIENT_GONE_STATUS
    num_texts: int = 0
    num_tokens: int = 0
    num_truncated: int = 0

    def add(self, usage: Usage | None) -> None:
        """Add what one engine call cost."""
        if usage is not None:
            self.num_texts += len(usage.num_tokens)
            self.num_tokens += usage.total_tokens
            self.num_truncated += sum(usage.truncated)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the answer's own headers."""
        headers = [(b"x-request-id", self.request_id.encode("latin-1"))]
        if self.num_texts:
            headers.append((b"x-cenote-tokens", b"%d" % self.num_tokens))
            headers.append((b"x-cenote-truncated", b"%d" % self.num_truncated))
        return headers
