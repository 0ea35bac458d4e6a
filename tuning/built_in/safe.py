"""Choices that are right for every call, for sections of the table that cannot be used.

They also serve calls for which a table that a person has changed has no row.
"""

from __future__ import annotations

from typing import Any

_DIRECT = {"submodule": "sm", "algorithm": "direct"}
_SPLIT = {"submodule": "sm", "algorithm": "split"}
_ONE_BY_ONE = {"submodule": "adapt", "algorithm": "linear", "window": 1}


def _row(use: dict[str, Any], **when: Any) -> dict[str, Any]:
    return {"name": "safe", "when": when, "use": use}


SAFE: dict[str, list[dict[str, Any]]] = {
    "compositions": [{"name": "safe", "composition": "tree"}],
    "segments": [{"name": "safe", "segment": "whole"}],
    "cells": [_row({"submodule": "sm", "algorithm": "flat"})],
    "messages": [
        _row({"submodule": "adapt", "algorithm": "by_rank"}, reproducible=True),
        _row(_ONE_BY_ONE, commutative=False, root={"min": 1}),
        _row({"submodule": "adapt", "algorithm": "binomial"}),
    ],
    "blocks": [_row({"submodule": "sm", "algorithm": "blocks"})],
    "nap": [
        _row({"submodule": "nap", "algorithm": "pairs"}, outermost=True),
        _row({"submodule": "sm", "algorithm": "flat"}, whole=False),
        _row(_DIRECT, bytes={"max": "2KiB"}),
        _row(_SPLIT),
    ],
    "lanes": [_row({"submodule": "sm", "algorithm": "shares"})],
    "ring": [
        _row({"submodule": "ring", "algorithm": "pieces"}, collective="allreduce", outermost=True),
        _row({"submodule": "adapt", "algorithm": "chain"}, outermost=True),
        _row({"submodule": "sm", "algorithm": "flat"}),
    ],
}
