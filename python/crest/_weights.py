"""Weights of checkpoints: safetensors, memory-mapped."""

from __future__ import annotations

import importlib
import json
import math
import mmap
import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Tuple, Union

from crest._program import CrestError
from crest._store import PathText, Run, _numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# dtype of safetensors: NumPy's, or its bits where NumPy has none; bytes
DTYPES: Dict[str, Tuple[str, int]] = {
    "F64": ("<f8", 8), "F32": ("<f4", 4), "F16": ("<f2", 2), "I64": ("<i8", 8), "I32": ("<i4", 4), "I16": ("<i2", 2),
    "I8": ("<i1", 1), "U64": ("<u8", 8), "U32": ("<u4", 4), "U16": ("<u2", 2), "U8": ("<u1", 1), "BOOL": ("?", 1),
}  # fmt: skip
BITS: Dict[str, Tuple[str, int, str]] = {  # and the name in ml_dtypes
    "BF16": ("<u2", 2, "bfloat16"), "F8_E4M3": ("<u1", 1, "float8_e4m3fn"), "F8_E5M2": ("<u1", 1, "float8_e5m2"),
}  # fmt: skip
MOST_HEADER = 100_000_000


class _Tensor:
    def __init__(self, data: mmap.mmap, offset: int, dtype: str, shape: Tuple[int, ...]) -> None:
        self.data, self.offset, self.dtype, self.shape = data, offset, dtype, shape

    def array(self, dtype: Any) -> "Array":
        array: Array = _numpy().ndarray(self.shape, dtype=dtype, buffer=self.data, offset=self.offset)
        return array


class Weights(Mapping[str, "Array"]):
    """Tensors by name, as NumPy arrays over the mapped file: nothing is read before it is used, nothing is copied. An
    array may be changed, which changes neither the file nor other openings of it. `torch.from_dlpack(weights[name])`
    shares its memory."""

    def __init__(self, files: List[Path]) -> None:
        _numpy()
        self.files = [str(f) for f in files]
        self._tensors: Dict[str, _Tensor] = {}
        for file in files:
            self._tensors.update(_map(file))

    def __getitem__(self, name: str) -> "Array":
        t = self._tensors[name]
        if t.dtype in DTYPES:
            return t.array(DTYPES[t.dtype][0])
        try:
            ml_dtypes = importlib.import_module("ml_dtypes")
        except ImportError:
            raise CrestError(
                f"'{name}' is {t.dtype}, which NumPy lacks\n"
                "  Use float32(name), a copy, or bits(name), or install ml_dtypes: pip install ml_dtypes"
            ) from None
        return t.array(getattr(ml_dtypes, BITS[t.dtype][2]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __repr__(self) -> str:
        return f"<{len(self)} tensors of {', '.join(self.files)}>"

    def dtype(self, name: str) -> str:
        """The dtype in the file: F32, BF16, ..."""
        return self._tensors[name].dtype

    def shape(self, name: str) -> Tuple[int, ...]:
        return self._tensors[name].shape

    def bits(self, name: str) -> "Array":
        """The values of a BF16 or F8 tensor as unsigned integers, without a copy; of others as they are."""
        t = self._tensors[name]
        return t.array(BITS[t.dtype][0] if t.dtype in BITS else DTYPES[t.dtype][0])

    def float32(self, name: str) -> "Array":
        """A copy in fp32. F8 needs ml_dtypes."""
        np = _numpy()
        t = self._tensors[name]
        if t.dtype == "BF16":
            array: Array = (self.bits(name).astype(np.uint32) << 16).view(np.float32)
        else:
            array = self[name].astype(np.float32)
        return array


def weights(which: Union[Run, PathText]) -> Weights:
    """The weights of a run (its newest checkpoint), of a checkpoint, of a folder with safetensors, or of one such file."""
    path = Path(which.folder if isinstance(which, Run) else which)
    if isinstance(which, Run) and not which.folder:
        raise CrestError(f"run {which.id} is of kind {which.kind}, which has no folder of weights", 2)
    if path.is_file() and path.name in ("latest", "best"):
        path = _labeled(path)
    if path.is_file():
        return Weights([path])
    if not path.is_dir():
        raise CrestError(f"there is no folder {path}\n  Give a run, a checkpoint, or a folder with model.safetensors.")
    if (path / "checkpoints").is_dir():
        path = _newest(path / "checkpoints")
    index = path / "model.safetensors.index.json"
    if (path / "model.safetensors").is_file():
        return Weights([path / "model.safetensors"])
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CrestError(f"{index} is no index of safetensors: it needs an object 'weight_map'") from None
        if any(not isinstance(n, str) or os.path.basename(n) != n for n in names):
            raise CrestError(f"{index} names a file outside of its folder")
        return Weights([path / n for n in names])
    raise CrestError(f"{path} has no model.safetensors\n  Give a run, a checkpoint, or a folder with model.safetensors.")


def _labeled(text: Path) -> Path:
    # Older runs, and file systems without links, have the name as a text.
    with text.open("rb") as file:
        name = file.read(32).decode("ascii", "replace").strip()
    return text.parent / name if re.fullmatch(r"step-\d+", name) else text


def _newest(checkpoints: Path) -> Path:
    # A folder gets its name when it is complete (docs/reference/checkpoints.md).
    steps = [(int(m[1]), p) for p in checkpoints.iterdir() if (m := re.fullmatch(r"step-(\d+)", p.name))]
    if not steps:
        raise CrestError(f"{checkpoints} has no checkpoint yet\n  Wait for the first one, or train with a smaller save_every.")
    return max(steps)[1]


def _map(file: Path) -> Dict[str, _Tensor]:
    def damaged(what: str) -> CrestError:
        return CrestError(f"{file} is no valid safetensors file: {what}")

    try:
        with open(file, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size < 8:
                raise damaged("it has no header")
            (length,) = struct.unpack("<Q", f.read(8))
            if length > min(size - 8, MOST_HEADER):
                raise damaged(f"its header of {length} bytes does not fit")
            try:
                header = json.loads(f.read(length))
                rows = [(k, v["dtype"], tuple(v["shape"]), *v["data_offsets"]) for k, v in header.items() if k != "__metadata__"]
            except (ValueError, KeyError, TypeError, AttributeError):
                raise damaged("its header is not the JSON of tensors") from None
            data = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as e:
        raise CrestError(f"{file} could not be opened: {e.strerror}") from None
    tensors: Dict[str, _Tensor] = {}
    for name, dtype, shape, begin, *rest in rows:
        each = BITS[dtype][1] if dtype in BITS else DTYPES[dtype][1] if dtype in DTYPES else 0
        if not each:
            raise CrestError(f"{file}: tensor '{name}' has dtype {dtype}, which this package does not know")
        if len(rest) != 1 or not all(type(x) is int and x >= 0 for x in (*shape, begin, *rest)):
            raise damaged(f"tensor '{name}' has a shape or offsets that are no counts")
        if rest[0] - begin != math.prod(shape) * each or 8 + length + rest[0] > size:
            raise damaged(f"tensor '{name}' does not fit its bytes")
        tensors[name] = _Tensor(data, 8 + length + begin, dtype, shape)
    return tensors
