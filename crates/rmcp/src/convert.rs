//! Conversions between rmcp's types and those of `rethread`.

use rethread::{LogLevel, RpcError, Version};
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, LoggingLevel, NumberOrString, ProtocolVersion};

/// Converts an id or a token. rmcp holds numbers below 2^63; larger ones become strings.
pub(crate) fn number_or_string(json: &[u8]) -> NumberOrString {
    let text = str::from_utf8(json).unwrap_or_default();
    if let Ok(number) = text.parse() {
        return NumberOrString::Number(number);
    }
    serde_json::from_slice(json).unwrap_or_else(|_| NumberOrString::String(text.into()))
}

pub(crate) fn to_rpc(error: ErrorData) -> RpcError {
    let mut rpc = RpcError::new(error.code.0.into(), error.message);
    rpc.data = error.data;
    rpc
}

pub(crate) fn from_rpc(error: RpcError) -> ErrorData {
    let code = i32::try_from(error.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
    ErrorData::new(ErrorCode(code), error.message, error.data)
}

pub(crate) fn log_level(level: LoggingLevel) -> LogLevel {
    match level {
        LoggingLevel::Debug => LogLevel::Debug,
        LoggingLevel::Info => LogLevel::Info,
        LoggingLevel::Notice => LogLevel::Notice,
        LoggingLevel::Warning => LogLevel::Warning,
        LoggingLevel::Error => LogLevel::Error,
        LoggingLevel::Critical => LogLevel::Critical,
        LoggingLevel::Alert => LogLevel::Alert,
        LoggingLevel::Emergency => LogLevel::Emergency,
    }
}

pub(crate) fn version(version: Version) -> ProtocolVersion {
    let known = ProtocolVersion::KNOWN_VERSIONS.iter();
    let same = known.clone().find(|known| known.as_str() == version.as_str());
    same.cloned().unwrap_or(ProtocolVersion::LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_type_and_text() {
        let read = |json: &str| number_or_string(json.as_bytes());
        assert_eq!(read("7"), NumberOrString::Number(7));
        assert_eq!(read("-7"), NumberOrString::Number(-7));
        assert_eq!(read("\"7\""), NumberOrString::String("7".into()));
        assert_eq!(read(r#""a\"b""#), NumberOrString::String("a\"b".into()));
        let beyond = "99999999999999999999";
        assert_eq!(read(beyond), NumberOrString::String(beyond.into()));
    }

    #[test]
    fn errors_round_trip() {
        let error = RpcError::new(-31_234, "no").with_data(serde_json::json!({ "a": 1 }));
        assert_eq!(to_rpc(from_rpc(error.clone())), error);
        assert_eq!(from_rpc(RpcError::new(1 << 40, "no")).code, ErrorCode::INTERNAL_ERROR);
    }

    #[test]
    fn rmcp_knows_every_revision() {
        for ours in rethread::Revisions::BOTH.newest_first() {
            assert_eq!(version(ours).as_str(), ours.as_str());
        }
    }
}
