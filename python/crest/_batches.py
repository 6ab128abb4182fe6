"""Arrays of tokens as frames for `crest train --data -` (docs/reference/data.md)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Optional, Tuple

from crest._program import CrestError
from crest._store import _numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tokens = NDArray[Any]


class Batches:
    """The arrays of an iterator, each of shape (batch, sequence + 1). Takes the first one at once: the program needs
    its shape."""

    def __init__(self, batches: Iterable[Any], validation: Optional[Any]) -> None:
        self._rest = iter(batches)
        try:
            first = next(self._rest)
        except StopIteration:
            raise CrestError("batches has no array", 2) from None
        self._first = _tokens(first, "array 1 of batches")
        self._validation: List[Tokens] = []
        if validation is not None:
            self._validation = [_tokens(validation, "validation", self.shape[1])]

    @property
    def shape(self) -> Tuple[int, int]:
        """Of the first array."""
        rows, columns = self._first.shape
        return int(rows), int(columns)

    def frames(self) -> Iterator[bytes]:
        """Each is a whole frame."""
        for held in self._validation:
            yield _frame(b"VAL1", held)
        yield _frame(b"TOK1", self._first)
        for number, batch in enumerate(self._rest, 2):
            yield _frame(b"TOK1", _tokens(batch, f"array {number} of batches", self.shape[1]))


def _tokens(values: Any, name: str, columns: Optional[int] = None) -> "Tokens":
    np = _numpy()
    array: Tokens = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise CrestError(f"{name}: tokens are whole numbers, not {array.dtype}", 2)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise CrestError(f"{name} has the shape {array.shape}\n  It must be (batch, sequence + 1): each row has its last target.", 2)
    if columns is not None and array.shape[1] != columns:
        raise CrestError(f"{name} has rows of {array.shape[1]} tokens, and the first array of batches has rows of {columns}", 2)
    if int(array.min()) < 0 or int(array.max()) >= 2**31:
        raise CrestError(f"{name} has a token outside 0 .. 2**31 - 1", 2)
    return array


def _frame(kind: bytes, array: "Tokens") -> bytes:
    return kind + struct.pack("<ii", *array.shape) + array.astype("<i4").tobytes()
