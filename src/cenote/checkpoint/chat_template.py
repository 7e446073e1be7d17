"""The chat template that a checkpoint brings, as source; rendering is the text layer's work."""

from __future__ import annotations

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.jsonfile import MAX_JSON_BYTES, read_optional_object
from cenote.errors import CheckpointError


def read_chat_template(checkpoint: Checkpoint) -> str | None:
    """Return the default template of `chat_template.jinja`, `chat_template.json` or `tokenizer_config.json`."""
    path = checkpoint.folder / "chat_template.jinja"
    if path.is_file():
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(f"{path} is no template: it has {path.stat().st_size:,} bytes")
        return path.read_text(encoding="utf-8", errors="replace")
    for settings in (read_optional_object(checkpoint.folder / "chat_template.json"), checkpoint.tokenizer_settings):
        template = settings.get("chat_template")
        if isinstance(template, list):
            named = {str(entry.get("name")): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default")
        if isinstance(template, str):
            return template
    return None
