"""Length buckets: powers of two."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def length_buckets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    """int8[n]: floor(log2(max(1, length))), exact below 2**53."""
    # frexp gives the exponent itself, where log2 of 2**k - 1 may round up to k
    return (np.frexp(np.maximum(lengths, 1).astype(np.float64))[1] - 1).astype(np.int8)
