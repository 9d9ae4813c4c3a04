//! Empty. The tests are in `tests/outside`, and the scripts that they run in `clients`.
