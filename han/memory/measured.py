"""Numbers of this room that were measured (docs/decisions: shared-arrays, new-communicators)."""

from __future__ import annotations

KEPT = 64 << 20  # bytes of free memory that stay reserved: new pages would have to be cleared
SPARE = 4 << 20  # bytes below a memory limit that stay free for the kernel's own needs
PART = 64  # an arena lends a channel this part of its addresses at most
