"""A model id or folder -> `ModelSpec`: which architecture, pooling, heads, prompts and limits. Free of torch."""

from cenote.checkpoint.read import read_checkpoint, read_model
from cenote.checkpoint.source import Located, locate
from cenote.checkpoint.spec import ModelSpec

__all__ = ["Located", "ModelSpec", "locate", "read_checkpoint", "read_model"]
