//! A connection that reads a stream of a session.

use crate::stream::reader_body::ReaderBody;
use rethread_proto::jsonrpc::RequestId;

/// A connection that was opened for a GET.
pub(crate) struct GetConnection {
    pub(crate) reader: Box<ReaderBody>,
    /// The id of the oldest retained event, if events after the cursor are gone.
    pub(crate) gap: Option<String>,
    /// `None` for a new stream.
    pub(crate) resumed: Option<ResumedStream>,
}

/// The stream that a GET resumes.
pub(crate) struct ResumedStream {
    /// The requests that it answers.
    pub(crate) calls: Vec<RequestId>,
}
