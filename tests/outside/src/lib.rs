//! Nothing of its own: the checks from outside are in `tests/outside`, the scripts they start in `clients`.
