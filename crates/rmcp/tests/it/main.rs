//! rmcp servers behind the transport, over real sockets and through every revision.

#![allow(deprecated)] // what rmcp marks so is served, and tested

mod calls;
mod stage;
mod support;
