//! Several processes that share one store (`docs/nodes.md`): names and decisions, without IO.

mod chunks;
mod forward;
mod incarnation;
mod lease;
pub mod mail;
mod members;
mod repair;
mod route;

pub use chunks::{ChunkSequence, ChunkStep};
pub use forward::{Claim, Delivery, Execution, ExecutionStep, Forward, ForwardStep};
pub use incarnation::{Incarnation, ReaderToken};
pub use lease::{LeaseClock, LeaseError, LeaseKeeper, LeaseRequest, MemberAction, RenewedLease};
pub use members::{Liveness, Members};
pub use repair::OpenStream;
pub use route::{
    AnswerPlace, CallPlace, NodePlace, RetryNode, SessionPlace, SessionViews, any_other_node, place_of_answer,
    place_of_retry, places_of_notification,
};
