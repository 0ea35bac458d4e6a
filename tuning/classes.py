"""Classes of operations: for which other calls a measurement stands, and for which it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from han.tasks.signature import Signature

TUNED = "tuned table"  # the name of its rule
CLASSES = {
    "native": "all types and operations whose kernels are as fast as memory",
    "heavy": "all types and operations whose kernels are slower than memory",
    "user-defined": "all operations without a kernel",
    "ordered": "all operations that do not commute",
}
STAND_FOR: Mapping[str, Mapping[str, Any]] = {  # what the signature of a call of each class has
    "native": {"op": "sum", "dtype": "float64", "native": True, "commutative": True},
    "heavy": {"op": "prod", "dtype": "complex128", "native": True, "commutative": True},
    "user-defined": {"native": False, "commutative": True},
    "ordered": {"commutative": False},
}


def operation_of(signature: Signature) -> str:
    """Return the class of a call's operation; "" for calls that do not reduce."""
    if not signature.reduces:
        return ""
    if not signature.commutative:
        return "ordered"
    if not signature.native:
        return "user-defined"
    return "heavy" if signature.heavy else "native"


def stands_for(measured: str, signature: Signature) -> list[str]:
    """Return the line that says why what was `measured` decides for another type or operation.

    `measured` is a description of conditions of a call of the same class. There is no line for
    calls that do not reduce, as their types do not matter.
    """
    words, operation = measured.split(", "), operation_of(signature)
    if not measured or not operation or {signature.dtype, signature.op} <= {*words}:
        return []
    return [f"with {words[0]}, {words[1]}, which stands for {CLASSES[operation]}"]
