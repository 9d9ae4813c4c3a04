//! The cases that every store backend passes.
