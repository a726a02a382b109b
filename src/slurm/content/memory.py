"""Arrays as content: their memory, read where it lies, and what it means."""

from __future__ import annotations

import hashlib
import io
import sys
from typing import Any

from slurm.content.plain import of_memory


def of_array(value: Any) -> tuple[list[str], list[Any]] | None:
    """Digests of an array's memory, and what else belongs to it; None for any other object.

    Arrays of objects are none: their memory holds addresses.
    """
    kind = type(value)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject:
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        # The transposed one of an array in Fortran's order lies in C's.
        flat = numpy.ascontiguousarray(value.T if order == "F" else value)
        if _has_metadata(value.dtype):
            return None
        told = [order, repr(value.shape), repr(numpy.lib.format.dtype_to_descr(value.dtype))]
        return [*told, of_memory("array", flat.reshape(-1).view("u1"))], []
    frames = _of_frame(value, kind)
    if frames is not None:
        return frames
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        if value.layout != torch.strided or value.is_quantized:
            return None
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        told = [str(value.dtype), repr(tuple(value.shape)), repr(value.stride())]
        return [*told, str(value.requires_grad), of_memory("tensor", flat)], []
    return None


def _of_frame(value: Any, kind: type) -> tuple[list[str], list[Any]] | None:
    """A table by its columns: how its memory is cut into blocks and chunks is not its content."""
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and kind is pandas.DataFrame:
        columns = [value.iloc[:, at].array for at in range(value.shape[1])]
        own = [one.to_numpy() if type(one).__name__ in _NUMPYS else one for one in columns]
        about = [value.columns, value.index, value.attrs, value.flags.allows_duplicate_labels]
        return ["frame", repr(value.shape)], [*about, own]
    if arrow is not None and kind in (arrow.Table, arrow.RecordBatch):
        columns = [_one_piece(arrow, column) for column in value.columns]
        whole = arrow.Table.from_arrays(columns, schema=value.schema)
        sink = _Sink()
        with arrow.ipc.new_stream(arrow.PythonFile(sink, mode="w"), whole.schema) as stream:
            stream.write_table(whole)
        return ["table", kind.__name__, sink.digest.hexdigest()], []
    return None


def _one_piece(arrow: Any, column: Any) -> Any:
    """A column of arrow without the chunks and offsets that it may lie in."""
    chunks = getattr(column, "chunks", [column])
    if len(chunks) == 1 and not chunks[0].offset:
        return chunks[0]
    none = arrow.array([], column.type) if not chunks else chunks[0].slice(0, 0)
    return arrow.concat_arrays([*chunks, none])


#: How pandas calls the arrays of numpy that stand in its columns.
_NUMPYS = ("NumpyExtensionArray", "PandasArray")


class _Sink(io.RawIOBase):
    """A file that only digests what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        """It is there to be written to."""
        return True

    def write(self, data: Any) -> int:
        """Digest some bytes."""
        self.digest.update(data)
        return memoryview(data).nbytes


def _has_metadata(dtype: Any) -> bool:
    """Whether a type of numpy says more than what its memory means."""
    if dtype.metadata is not None:
        return True
    if dtype.subdtype is not None:
        return _has_metadata(dtype.base)
    return any(_has_metadata(field[0]) for field in (dtype.fields or {}).values())
