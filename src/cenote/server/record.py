"""What is noted about one HTTP request while it is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0

    def add(self, usage: Usage | None) -> None:
        """Add what one engine call cost."""
        if usage is not None:
            self.num_texts += len(usage.num_tokens)
            self.num_tokens += usage.total_tokens
            self.num_truncated += sum(usage.truncated)
            self.queue_seconds += usage.queue_seconds
            self.inference_seconds += usage.inference_seconds

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the answer's own headers."""
        headers = [(b"x-request-id", self.request_id.encode("latin-1"))]
        if self.num_texts:
            headers.append((b"x-cenote-tokens", b"%d" % self.num_tokens))
            headers.append((b"x-cenote-truncated", b"%d" % self.num_truncated))
            headers.append((b"x-cenote-queue-ms", b"%.3f" % (self.queue_seconds * 1e3)))
            headers.append((b"x-cenote-inference-ms", b"%.3f" % (self.inference_seconds * 1e3)))
        return headers

    def fields(self) -> dict[str, Any]:
        """Return what the log has about it: nothing that a client wrote but its id."""
        fields: dict[str, Any] = {
            "route": self.route,
            "status": self.status,
            "request_id": self.request_id,
            "model": self.model,
        }
        if self.num_texts:
            fields |= {"texts": self.num_texts, "tokens": self.num_tokens, "truncated": self.num_truncated}
            fields["queue_seconds"] = round(self.queue_seconds, 6)
            fields["inference_seconds"] = round(self.inference_seconds, 6)
        return fields


HEADERS = ("x-request-id", "x-cenote-tokens", "x-cenote-truncated", "x-cenote-queue-ms", "x-cenote-inference-ms")
"""The names of those headers."""
