//! Tools of a legacy server that run only as tasks of 2025-11-25. The gateway creates the task and waits for its result, so the
//! client sees one long call.

use super::super::members::{Member, filter_meta, member, mentions, rewrite_or_keep};
use bytes::Bytes;
use serde_json::{Value, json};

/// The key in `_meta` that names the task of a message.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Whether a server with these capabilities runs calls of tools as tasks.
pub fn serves_tool_tasks(capabilities: &Value) -> bool {
    capabilities["tasks"]["requests"]["tools"]["call"].is_object()
}

/// Whether a listed tool with this `execution` can be called only as a task.
pub fn is_task_required(execution: &Value) -> bool {
    execution["taskSupport"] == "required"
}

/// The params of a call that creates a task.
pub fn task_params(params: &Bytes) -> Bytes {
    rewrite_or_keep(params, b"\"task\":{}", |name, _| match name {
        "task" => Member::Remove,
        _ => Member::Keep,
    })
}

/// The id of the task that a result has created. `None` for any other result.
pub fn created_task(result: &[u8]) -> Option<String> {
    serde_json::from_str(member(member(result, "task")?.as_bytes(), "taskId")?).ok()
}

/// The params of `tasks/result` and `tasks/cancel`.
pub fn task_reference(id: &str) -> Bytes {
    json!({ "taskId": id }).to_string().into()
}

/// The result of a task, without the name of the task.
pub fn task_result(result: &Bytes) -> Bytes {
    if !mentions(result, &[RELATED_TASK]) {
        return result.clone();
    }
    rewrite_or_keep(result, b"", |name, raw| match name {
        "_meta" => filter_meta(raw, |key| key == RELATED_TASK),
        _ => Member::Keep,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_4_1_only_a_required_task_is_created() {
        for (execution, required) in [
            (json!({ "taskSupport": "required" }), true),
            (json!({ "taskSupport": "optional" }), false),
            (json!({ "taskSupport": "forbidden" }), false),
            (json!({}), false),
            (Value::Null, false),
        ] {
            assert_eq!(is_task_required(&execution), required, "{execution}");
        }
        for (capabilities, serves) in [
            (json!({ "tasks": { "requests": { "tools": { "call": {} } } } }), true),
            (json!({ "tasks": { "requests": { "sampling": {} } } }), false),
            (json!({ "tasks": {} }), false),
            (json!({}), false),
        ] {
            assert_eq!(serves_tool_tasks(&capabilities), serves, "{capabilities}");
        }
    }

    #[test]
    fn line_4_1_required_task_is_created_and_its_result_loses_its_name() {
        let params = Bytes::from(r#"{"name":"a","arguments":{"task":1},"task":{"ttl":5}}"#);
        assert_eq!(task_params(&params), r#"{"name":"a","arguments":{"task":1},"task":{}}"#);
        let created = br#"{"task":{"taskId":"t 1","status":"working"}}"#;
        assert_eq!(created_task(created).as_deref(), Some("t 1"));
        for other in ["{\"content\":[]}", "{\"task\":{}}", "{\"task\":{\"taskId\":1}}", "[]"] {
            assert_eq!(created_task(other.as_bytes()), None, "{other}");
        }
        assert_eq!(task_reference("t 1"), r#"{"taskId":"t 1"}"#);
        for (result, expected) in [
            (
                r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"},"a":1}}"#,
                r#"{"content":[],"_meta":{"a":1}}"#,
            ),
            (
                r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#,
                r#"{"content":[]}"#,
            ),
            (r#"{"content":[ ]}"#, r#"{"content":[ ]}"#),
        ] {
            assert_eq!(task_result(&Bytes::from(result)), expected);
        }
    }
}
