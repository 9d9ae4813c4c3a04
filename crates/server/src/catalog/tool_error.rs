//! Failures of tools: what the model reads, and what the log gets.

use crate::call::ask_error::AskError;
use crate::call::call_ended::CallEnded;
use crate::node::telemetry::TARGET;
use rethread_proto::RequestId;
use rethread_proto::jsonrpc::RpcError;
use std::error::Error;
use std::fmt;

/// The text for the model in place of an error that its author did not choose to send.
const HIDDEN: &str = "The tool failed. The log of the server has the reason.";

type BoxError = Box<dyn Error + Send + Sync>;

/// Why a tool has no result. `?` converts every error into it: of the standard library, of other crates such as `anyhow`, and
/// your own.
///
/// | error | the client gets | the log gets |
/// |---|---|---|
/// | any other error, with `?` | an error result: the tool failed | the error and its sources |
/// | [`ToolError::message`] | an error result with this text, for the model | nothing |
/// | [`RpcError`], [`AskError`], [`CallEnded`] | the JSON-RPC error | nothing |
///
/// ```
/// use rethread::Context;
/// use rethread::catalog::ToolError;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Read {
///     path: String,
/// }
///
/// async fn read(args: Read, _: Context) -> Result<String, ToolError> {
///     if args.path.contains("..") {
///         return Err(ToolError::message("the path must not contain `..`")); // the model reads this
///     }
///     let size = std::fs::metadata(&args.path).map_err(ToolError::message)?.len(); // and this
///     if size > 1 << 20 {
///         return Err(ToolError::message(format_args!("the file has {size} bytes, which is too much")));
///     }
///     Ok(std::fs::read_to_string(&args.path)?) // this error goes to the log
/// }
/// ```
///
/// It does not implement [`Error`], because then `?` could not convert every error.
#[derive(Debug)]
pub struct ToolError(Kind);

#[derive(Debug)]
enum Kind {
    Message(String),
    Hidden(BoxError),
    Protocol(RpcError),
}

impl ToolError {
    /// A failure whose text the model reads, so that it can act on it. The text must not contain secrets.
    pub fn message(text: impl fmt::Display) -> Self {
        ToolError(Kind::Message(text.to_string()))
    }

    /// The text of the error result of a call of the tool `name`, or the JSON-RPC error.
    pub(super) fn into_text(self, name: &str, request: &RequestId) -> Result<String, RpcError> {
        match self.0 {
            Kind::Message(text) => Ok(text),
            Kind::Hidden(error) => {
                log("tool", name, request, &*error);
                Ok(HIDDEN.to_owned())
            }
            Kind::Protocol(error) => Err(error),
        }
    }

    /// The answer to a call of the prompt `name`, which has no error results.
    pub(super) fn into_rpc_error(self, name: &str, request: &RequestId) -> RpcError {
        match self.0 {
            Kind::Message(text) => RpcError::internal(text),
            Kind::Hidden(error) => {
                log("prompt", name, request, &*error);
                RpcError::internal("the prompt failed")
            }
            Kind::Protocol(error) => error,
        }
    }
}

fn log(kind: &'static str, name: &str, request: &RequestId, error: &(dyn Error + 'static)) {
    tracing::error!(target: TARGET, kind, name, %request, error = %Chain(error), "function failed");
}

/// An error and its sources.
struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let sources = std::iter::successors(self.0.source(), |&error| error.source());
        sources.take(MAX_SOURCES).try_for_each(|source| write!(f, ": {source}"))
    }
}

/// Sources that the log shows. Beyond: the rest is left out, because a source may be its own.
const MAX_SOURCES: usize = 16;

impl<E: Into<BoxError>> From<E> for ToolError {
    fn from(error: E) -> Self {
        // A conversion of its own for each of these types would overlap with this one.
        let error = match error.into().downcast::<RpcError>() {
            Ok(error) => return ToolError(Kind::Protocol(*error)),
            Err(other) => other,
        };
        let error = match error.downcast::<AskError>() {
            Ok(error) => return ToolError(Kind::Protocol((*error).into())),
            Err(other) => other,
        };
        match error.downcast::<CallEnded>() {
            Ok(error) => ToolError(Kind::Protocol((*error).into())),
            Err(other) => ToolError(Kind::Hidden(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(error: impl Into<ToolError>) -> Result<String, RpcError> {
        error.into().into_text("t", &RequestId::from(1))
    }

    #[test]
    fn errors_are_hidden_unless_they_are_messages() {
        let hidden = HIDDEN.to_owned();
        assert_eq!(answer(std::io::Error::other("/etc/secret")), Ok(hidden.clone()));
        assert_eq!(answer(anyhow::anyhow!("secret")), Ok(hidden.clone()));
        assert_eq!(answer("secret"), Ok(hidden));
        assert_eq!(answer(ToolError::message("too long")), Ok("too long".to_owned()));
    }

    #[test]
    fn errors_of_the_protocol_are_kept() {
        let invalid = RpcError::invalid_params("no");
        assert_eq!(answer(invalid.clone()), Err(invalid.clone()));
        assert_eq!(answer(AskError::Refused(invalid.clone())), Err(invalid));
        assert_eq!(answer(AskError::NotSupported("roots")).unwrap_err().code, -32021);
        assert_eq!(answer(CallEnded).unwrap_err().code, -32603);
    }

    #[test]
    fn log_has_the_sources() {
        let error = anyhow::anyhow!("disk full")
            .context("cannot save")
            .context("cannot finish");
        let error: BoxError = error.into();
        assert_eq!(Chain(&*error).to_string(), "cannot finish: cannot save: disk full");
    }
}
