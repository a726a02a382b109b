"""Arrays as content: their memory, read where it lies, and what it means."""

from __future__ import annotations

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
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        if value.layout != torch.strided or value.is_quantized:
            return None
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        told = [str(value.dtype), repr(tuple(value.shape)), repr(value.stride())]
        return [*told, str(value.requires_grad), of_memory("tensor", flat)], []
    return None


def _has_metadata(dtype: Any) -> bool:
    """Whether a type of numpy says more than what its memory means."""
    if dtype.metadata is not None:
        return True
    if dtype.subdtype is not None:
        return _has_metadata(dtype.base)
    return any(_has_metadata(field[0]) for field in (dtype.fields or {}).values())
