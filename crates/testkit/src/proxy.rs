//! A TCP proxy that breaks SSE responses on purpose.
