//! Tools to test MCP transports and stores.
