"""From a spec and its lock to a resolved kernel."""

from cutegen.resolve.chain import (
    Resolution,
    bind_winner,
    resolve_archs,
    resolve_document,
    resolve_file,
    resolve_parts,
    resolve_tuned,
    save_lock,
    split_document,
    tuning_space,
)
from cutegen.resolve.lock import Lock, lock_path, meaning, read_lock
from cutegen.resolve.pin import list_open, pin_archs, pin_decisions, tunable_keys

__all__ = [
    "Lock",
    "Resolution",
    "bind_winner",
    "list_open",
    "lock_path",
    "meaning",
    "pin_archs",
    "pin_decisions",
    "read_lock",
    "resolve_archs",
    "resolve_document",
    "resolve_file",
    "resolve_parts",
    "resolve_tuned",
    "save_lock",
    "split_document",
    "tunable_keys",
    "tuning_space",
]
