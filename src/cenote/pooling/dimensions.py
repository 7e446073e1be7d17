"""Which sizes of embedding a caller may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.config import as_option
from cenote.errors import InputError


@dataclass(frozen=True)
class DimensionRule:
    """The sizes an embedding of `native` values may be cut to.

    `matryoshka` lists the sizes that the model was trained for; an empty tuple means all, `None` that its files do not
    say. The native size is always allowed; `any_size` allows every smaller one too.
    """

    native: int
    matryoshka: tuple[int, ...] | None = None
    any_size: bool = False

    def verify(self, dimensions: int | None) -> None:
        """Raise `InputError` where an embedding cannot have this size."""
        if dimensions is None or self._is_native(dimensions):
            return
        if not isinstance(dimensions, int) or isinstance(dimensions, bool) or not 1 <= dimensions <= self.native:
            raise self._refusal(f"dimensions must be a whole number from 1 to {self.native}, not {dimensions!r}")
        if self.any_size or self.matryoshka == ():
            return
        if self.matryoshka is None:
            raise self._refusal(
                "the files of this model do not say that it was trained for smaller embeddings: leave dimensions out, "
                f"ask for {self.native}, or start the model with {as_option('any_dimensions')} to cut them all the same"
            )
        if dimensions not in self.matryoshka:
            sizes = ", ".join(map(str, sorted({*self.matryoshka, self.native})))
            raise self._refusal(
                f"this model was trained for the dimensions {sizes}, not for {dimensions}; "
                f"{as_option('any_dimensions')} at its start allows every size"
            )

    def _is_native(self, dimensions: int) -> bool:
        return type(dimensions) is int and dimensions == self.native

    @staticmethod
    def _refusal(message: str) -> InputError:
        return InputError(message, param="dimensions")
