//! Settings for the people who operate the gateway.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of metrics and the audit log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OperationSettings {
    /// The address of the listener for metrics and health.
    pub(crate) metrics: Option<SocketAddr>,
    /// Metrics name the tool of a call.
    pub(crate) label_tools: bool,
    /// The file of the audit log.
    pub(crate) audit: Option<PathBuf>,
    /// The audit log has the parameters of calls.
    pub(crate) audit_params: bool,
    /// The collector of traces, instead of that of the environment.
    pub(crate) otlp: Option<String>,
    /// The directory of tapes.
    pub(crate) tape: Option<PathBuf>,
    /// Tapes have payloads instead of shapes.
    pub(crate) tape_payloads: bool,
}
