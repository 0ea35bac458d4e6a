"""Look for instructions that not every x86-64 processor has, in code that runs on each of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CHOSEN = re.compile(r"kernels_avx\w*\.o|\w*avx\w*")  # files and functions with such instructions
FUNCTION = re.compile(r"^[0-9a-f]+ <([\w.]+)>:$")
# With vectors of AVX and later, or of SSE3 to SSE4.2, BMI and their kin: x86-64-v2 to v4
BEYOND = re.compile(
    r"%[yz]mm|\tv[a-z0-9]+ .*%xmm|\t(pshufb|palign|pabs|phadd|pmulld|pblend|blendv?p|round[ps][sd]"
    r"|ptest|pmovzx|pmovsx|popcnt|crc32|movbe|andn |bextr|pdep|pext |mulx|rorx|sarx|shlx|shrx"
    r"|pm(?:in|ax)(?:s[bd]|u[wd])|pcmp(?:gt|eq)q|packusdw|p(?:extr|insr)[bdq]|insertps|dpp[sd]"
    r"|h(?:add|sub)p[sd]|phsub|pmaddubsw|pmulhrsw|psign|movs[hl]dup|movddup|addsubp|lddqu"
    r"|lzcnt|bls[ri]|blsmsk|bzhi|cmpxchg16b|vzeroupper)"
)


def beyond(objects: Path) -> list[str]:
    """Return ``file: function`` for each use in the object files of a folder."""
    files = [path for path in sorted(objects.rglob("*.o")) if not CHOSEN.fullmatch(path.name)]
    assert files, f"no object files in {objects}"
    return [f"{path.name}: {name}" for path in files for name in _functions(path)]


def _functions(path: Path) -> list[str]:
    """Return the functions of an object file that use such instructions."""
    words = ("objdump", "-d", "--no-show-raw-insn", str(path))
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found: dict[str, None] = {}
    name = ""
    for line in text.splitlines():
        begun = FUNCTION.match(line)
        name = begun[1] if begun else name
        if not begun and BEYOND.search(line) and not CHOSEN.fullmatch(name.partition(".")[0]):
            found[name] = None
    return list(found)
