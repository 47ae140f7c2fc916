"""Private parts of PyTorch and of its linked libraries.

Nothing else in the package reaches into them, so a new release of PyTorch is reviewed here. What
depends on the processor is probed before it is used.

Shape suffixes: S samples, N inputs, M outputs; B rows, I items, D width.
"""

from __future__ import annotations

import ctypes
import inspect
import warnings
from functools import cache
from typing import cast

import torch
from torch import Tensor

_MISSING = (AttributeError, RuntimeError, TypeError)


def compute_alone() -> None:
    """Limit this thread to computing alone; other threads keep their numbers of threads.

    `torch.set_num_threads` also sets the number of every thread that begins to compute later. If
    a library has another name for its setting, this thread keeps the number that others have.
    """
    torch.get_num_threads()  # the first call in a thread sets the others' number
    libraries = ctypes.CDLL(torch._C.__file__)  # and all linked libraries
    for name in ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"):
        if set_number := getattr(libraries, name, None):
            set_number(1)


def is_forked_from_cuda() -> bool:
    """Return True in a child of a process that had used a GPU: CUDA works in no such child."""
    return bool(torch.cuda._is_in_bad_fork())


def is_profiled() -> bool:
    """Return True while a profiler of PyTorch records what this thread does."""
    return torch._C._autograd._profiler_enabled()


def storage_use_count(storage: torch.UntypedStorage) -> int:
    """Return the number of tensors and storages that use this memory."""
    uses: int = torch._C._storage_Use_Count(storage._cdata)
    return uses


def fused_linear(
    input_SN: Tensor, weight_MN: Tensor, bias_M: Tensor | None, activation: str
) -> Tensor:
    """Return oneDNN's product, bias and activation (or ``none``) in one, if `has_fused_linear`."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(
        input_SN, weight_MN, bias_M, activation, [], ""
    )
    return result


@cache
def has_fused_linear(dtype: torch.dtype) -> bool:
    """Return True if the fused product is there and this processor computes it in ``dtype``."""
    try:
        ones = torch.ones(2, 2, dtype=dtype)
        bias = torch.tensor([-3.0, -1.0], dtype=dtype)
        relu, tanh = (fused_linear(ones, ones, bias, name) for name in ("relu", "tanh"))
        sums = 2.0 + bias.expand(2, 2)
        return torch.equal(relu, sums.relu()) and torch.allclose(tanh, sums.tanh(), atol=0.01)
    except _MISSING:
        return False


def sampled_products(
    vector_BD: Tensor, table_ID: Tensor, offsets: Tensor, index_S: Tensor
) -> Tensor:
    """Return ``table[index] . vector`` [S], without gathering the rows.

    Row b has the products of ``index_S[offsets[b]:offsets[b + 1]]``; ``offsets`` and ``index_S``
    are of one dtype. They are computed only on a CPU, in float32 or float64, if
    `has_sampled_products`, and for at most as many products as there are pairs of a row and an
    item. The sparse matrix that says which products are wanted is in beta. PyTorch documents
    columns that ascend without repeats, but does not check it.
    """
    shape = (len(vector_BD), len(table_ID))
    # torch 2.11 warns at each tensor that is made with `check_invariants=False`.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        values_S = vector_BD.new_zeros(len(index_S))
        wanted = torch.sparse_csr_tensor(offsets, index_S, values_S, shape)
    found: Tensor = torch.sparse.sampled_addmm(wanted, vector_BD, table_ID.T, beta=0.0)
    return found.values()


@cache
def has_sampled_products() -> bool:
    """Return True if products of rows with candidates in any order, repeats too, come out right."""
    offsets = torch.tensor([0, 3, 6], dtype=torch.int32)
    index_S = torch.tensor([2, 0, 2, 1, 1, 0], dtype=torch.int32)
    vector_BD, table_ID = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.eye(3, 2)
    expected = torch.tensor([0.0, 1.0, 0.0, 5.0, 5.0, 3.0])
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.equal(sampled_products(vector_BD, table_ID, offsets, index_S), expected)
    except _MISSING:
        return False


def relu_backward(gradient: Tensor, result: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the gradient where ``result`` of a relu is positive, zero elsewhere."""
    if out is None:
        return cast(Tensor, torch.ops.aten.threshold_backward(gradient, result, 0.0))
    backward = torch.ops.aten.threshold_backward.grad_input
    return cast(Tensor, backward(gradient, result, 0, grad_input=out))


def tanh_backward(gradient: Tensor, result: Tensor) -> Tensor:
    """Return ``gradient * (1 - result²)``."""
    return cast(Tensor, torch.ops.aten.tanh_backward(gradient, result))


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` without what keeps the compiler off it.

    PyTorch wraps these methods so that ``torch.compile`` does not trace them. For that it imports
    all of ``torch._dynamo``: 1.4 s and 140 MiB at the beginning of every training. Here only losses
    are compiled, never an optimizer. The methods underneath the wrapping are PyTorch's own, and
    ``step`` gets back the ``no_grad`` that its wrapping held.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
