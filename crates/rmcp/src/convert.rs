//! Between rmcp's types and ours.

use rethread::{Level, RpcError, Version};
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, LoggingLevel, NumberOrString, ProtocolVersion};

/// An id or a token in rmcp's form. rmcp counts to 2^63; what is beyond is text to it.
pub(crate) fn number_or_string(json: &[u8]) -> NumberOrString {
    serde_json::from_slice(json).unwrap_or_else(|_| NumberOrString::String(String::from_utf8_lossy(json).into()))
}

pub(crate) fn to_rpc(error: ErrorData) -> RpcError {
    RpcError {
        code: error.code.0.into(),
        message: error.message,
        data: error.data,
    }
}

pub(crate) fn from_rpc(error: RpcError) -> ErrorData {
    let code = i32::try_from(error.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
    ErrorData::new(ErrorCode(code), error.message, error.data)
}

pub(crate) fn level(level: LoggingLevel) -> Level {
    match level {
        LoggingLevel::Debug => Level::Debug,
        LoggingLevel::Info => Level::Info,
        LoggingLevel::Notice => Level::Notice,
        LoggingLevel::Warning => Level::Warning,
        LoggingLevel::Error => Level::Error,
        LoggingLevel::Critical => Level::Critical,
        LoggingLevel::Alert => Level::Alert,
        LoggingLevel::Emergency => Level::Emergency,
    }
}

pub(crate) fn version(version: Version) -> ProtocolVersion {
    let known = ProtocolVersion::KNOWN_VERSIONS.iter();
    let same = known.clone().find(|known| known.as_str() == version.as_str());
    same.cloned().unwrap_or(ProtocolVersion::LATEST)
}
