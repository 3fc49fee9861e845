"""oneDNN's product of bf16 matrices with float32 results, by its C interface: torch has no door to it.

torch ships oneDNN inside, but its operations round the result of a bf16 product to bf16 again. The library by itself
(PyPI: onednn-cpu-gomp) gives what the CPU's matrix unit (AMX) computes, at the speed of reading the weights.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import site
import sys
import weakref
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

log = logging.getLogger(__name__)

# Numbers of oneDNN's C interface, versions 3.x (dnnl_types.h).
_CPU, _IN_ORDER, _ANY_LAYOUT = 1, 1, 1
_SOURCE, _WEIGHTS, _DESTINATION = 1, 33, 17
_QUERY_WEIGHTS = 131
_BF16, _FLOAT32 = 2, 3
# The matrix unit takes 16 rows at a time: fewer cost as much, and fewer shapes are made ready.
ROW_MULTIPLE = 16
_ALIGNMENT = 64


class _Argument(ctypes.Structure):
    _fields_ = (("arg", c_int), ("memory", c_void_p))


class _Library:
    """The loaded library, its engine and stream. Calls release the interpreter lock."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self.engine, self.stream = c_void_p(), c_void_p()
        self._library.dnnl_primitive_desc_query_md.restype = c_void_p
        self._library.dnnl_memory_desc_get_size.restype = c_size_t
        self.call("engine_create", byref(self.engine), _CPU, c_size_t(0))
        self.call("stream_create", byref(self.stream), self.engine, _IN_ORDER)
        self._products: dict[tuple[object, ...], c_void_p] = {}

    def call(self, name: str, *arguments: object) -> None:
        """One function of the interface. Raises RuntimeError with its status."""
        status = getattr(self._library, f"dnnl_{name}")(*arguments)
        if status:
            raise RuntimeError(f"oneDNN: {name} failed with status {status}")

    def matrix(self, rows: int, columns: int, dtype: int, strides: tuple[int, int] | None) -> c_void_p:
        """The description of a matrix; without strides the layout is the library's choice."""
        described, dims = c_void_p(), (c_int64 * 2)(rows, columns)
        if strides is None:
            self.call("memory_desc_create_with_tag", byref(described), 2, dims, dtype, _ANY_LAYOUT)
        else:
            self.call("memory_desc_create_with_strides", byref(described), 2, dims, dtype, (c_int64 * 2)(*strides))
        return described

    def memory(self, described: c_void_p, address: int) -> c_void_p:
        """A described piece of memory; whoever asked keeps it alive and destroys the handle."""
        handle = c_void_p()
        self.call("memory_create", byref(handle), described, self.engine, c_void_p(address))
        return handle

    def execute(self, primitive: c_void_p, arguments: ctypes.Array[_Argument]) -> None:
        """Run, and return when it is done (streams on a CPU do not run ahead)."""
        self.call("primitive_execute", primitive, self.stream, len(arguments), arguments)

    def layout_for(self, inner: int, outer: int) -> tuple[c_void_p, int]:
        """How weights [inner, outer] are best laid out, and the bytes that this takes."""
        described = self._description(ROW_MULTIPLE, self.matrix(inner, outer, _BF16, None), inner, outer)
        layout = c_void_p(self._library.dnnl_primitive_desc_query_md(described, _QUERY_WEIGHTS, 0))
        return layout, int(self._library.dnnl_memory_desc_get_size(layout))

    def product(self, rows: int, layout: c_void_p, inner: int, outer: int) -> c_void_p:
        """The product of that shape, made once a process; it may run in several threads at a time."""
        key = (rows, inner, outer)
        if key not in self._products:
            made = c_void_p()
            self.call("primitive_create", byref(made), self._description(rows, layout, inner, outer))
            self._products[key] = made
        return self._products[key]

    def _description(self, rows: int, weights: c_void_p, inner: int, outer: int) -> c_void_p:
        """[rows, inner] x [inner, outer] -> float32."""
        described = c_void_p()
        source = self.matrix(rows, inner, _BF16, (inner, 1))
        destination = self.matrix(rows, outer, _FLOAT32, (outer, 1))
        arguments = (self.engine, source, weights, None, destination, None)
        self.call("matmul_primitive_desc_create", byref(described), *arguments)
        return described

    def lay_out(self, weight: Tensor, layout: c_void_p, laid_out: c_void_p) -> None:
        """`weight` [outer, inner], transposed, into its layout."""
        outer, inner = weight.shape
        plain = self.matrix(inner, outer, _BF16, (1, inner))
        described, reorder = c_void_p(), c_void_p()
        self.call("reorder_primitive_desc_create", byref(described), plain, self.engine, layout, self.engine, None)
        self.call("primitive_create", byref(reorder), described)
        source = self.memory(plain, weight.data_ptr())
        self.execute(reorder, _arguments({_SOURCE: source, _DESTINATION: laid_out}))
        self.destroy([source])

    def destroy(self, memories: Sequence[c_void_p]) -> None:
        """Give handles back; what they describe is the caller's."""
        for memory in memories:
            self.call("memory_destroy", memory)


class Product:
    """x [rows, in] times the transpose of a weight [out, in] that was laid out once. For one thread at a time."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` is bfloat16 and not kept as it comes. Raises RuntimeError where there is no library."""
        library = load()
        if library is None:
            raise RuntimeError("oneDNN is not installed")
        self._library = library
        self.out_features, self.in_features = weight.shape
        self._layout, num_bytes = library.layout_for(self.in_features, self.out_features)
        self._room = torch.empty(num_bytes + _ALIGNMENT, dtype=torch.uint8)
        start = self._room.data_ptr() + -self._room.data_ptr() % _ALIGNMENT
        self._weight = library.memory(self._layout, start)
        library.lay_out(weight.contiguous(), self._layout, self._weight)
        self._memories = [self._weight]
        self._prepared: dict[int, _Prepared] = {}
        weakref.finalize(self, library.destroy, self._memories)

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [rows, in] bfloat16, contiguous, a multiple of ROW_MULTIPLE rows; [rows, out] float32."""
        torch.get_num_threads()  # has torch set the number of OpenMP threads, by which oneDNN goes, in this thread
        rows = len(x)
        prepared = self._prepared.get(rows) or self._prepare(rows)
        output = torch.empty(rows, self.out_features)
        self._library.call("memory_set_data_handle", prepared.source, c_void_p(x.data_ptr()))
        self._library.call("memory_set_data_handle", prepared.destination, c_void_p(output.data_ptr()))
        self._library.execute(prepared.primitive, prepared.arguments)
        return output

    def _prepare(self, rows: int) -> _Prepared:
        library, inner, outer = self._library, self.in_features, self.out_features
        source = library.memory(library.matrix(rows, inner, _BF16, (inner, 1)), 0)
        destination = library.memory(library.matrix(rows, outer, _FLOAT32, (outer, 1)), 0)
        self._memories += [source, destination]
        arguments = _arguments({_SOURCE: source, _WEIGHTS: self._weight, _DESTINATION: destination})
        primitive = library.product(rows, self._layout, inner, outer)
        self._prepared[rows] = _Prepared(primitive, source, destination, arguments)
        return self._prepared[rows]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A product of so many rows, ready but for the addresses of what goes in and comes out."""

    primitive: c_void_p
    source: c_void_p
    destination: c_void_p
    arguments: ctypes.Array[_Argument]


def _arguments(roles: Mapping[int, c_void_p]) -> ctypes.Array[_Argument]:
    return (_Argument * len(roles))(*(_Argument(role, memory) for role, memory in roles.items()))


def has_matrix_unit() -> bool:
    """Whether this CPU multiplies bf16 in tiles (AMX), and oneDNN is installed."""
    return torch.cpu._is_amx_tile_supported() and load() is not None


@functools.cache
def load() -> _Library | None:
    """The library where pip puts it, loaded once a process; None where it is not installed or not of version 3."""
    for prefix in (sys.prefix, site.getuserbase()):
        path = Path(prefix) / "lib" / "libdnnl.so.3"
        if path.exists():
            try:
                return _Library(path)
            except (OSError, RuntimeError) as error:
                log.warning("oneDNN at %s is not used: %s", path, error)
    return None
