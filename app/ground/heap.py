"""The garbage collector of a long-lived process: what was loaded at the start is not looked through again and again."""

from __future__ import annotations

import gc
from typing import Final

# Pages of rows are thousands of small objects that reference counting frees. By default each seven
# hundred of them start a collection, and some of those walk all modules: a third of a page's time.
THRESHOLDS: Final = (50_000, 20, 20)


def settle_heap() -> None:
    """Call once per process, when its modules are loaded and before it works."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
