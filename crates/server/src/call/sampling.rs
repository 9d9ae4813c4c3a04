//! Questions to the model of a client, and its answers.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// A request to the model of the client: `sampling/createMessage`.
///
/// ```
/// use rethread::SamplingRequest;
///
/// let request = SamplingRequest::new("What is the capital of France?", 100)
///     .system_prompt("Answer in one word.")
///     .temperature(0.0);
/// # assert_eq!(serde_json::to_value(request).unwrap()["maxTokens"], 100);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct SamplingRequest {
    messages: Vec<SamplingMessage>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_sequences: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_preferences: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SamplingMessage {
    role: &'static str,
    content: SamplingContent,
}

impl SamplingRequest {
    /// A conversation that begins with a message of the user. The answer has at most `max_tokens` tokens.
    pub fn new(prompt: impl Into<SamplingContent>, max_tokens: u32) -> Self {
        let request = SamplingRequest {
            messages: Vec::new(),
            max_tokens,
            system_prompt: None,
            temperature: None,
            stop_sequences: Vec::new(),
            model_preferences: None,
        };
        request.user(prompt)
    }

    /// Adds a message of the user.
    pub fn user(self, content: impl Into<SamplingContent>) -> Self {
        self.message("user", content.into())
    }

    /// Adds a message of the model.
    pub fn assistant(self, content: impl Into<SamplingContent>) -> Self {
        self.message("assistant", content.into())
    }

    fn message(mut self, role: &'static str, content: SamplingContent) -> Self {
        self.messages.push(SamplingMessage { role, content });
        self
    }

    /// The system prompt. The client may change it.
    pub fn system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.system_prompt = Some(prompt.into());
        self
    }

    /// The temperature. A value that is not finite is left out.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature).filter(|value| value.is_finite());
        self
    }

    /// A text at which the model stops.
    pub fn stop_sequence(mut self, text: impl Into<String>) -> Self {
        self.stop_sequences.push(text.into());
        self
    }

    /// `ModelPreferences` of the MCP schema: hints for the choice of a model.
    pub fn model_preferences(mut self, preferences: Value) -> Self {
        self.model_preferences = Some(preferences);
        self
    }
}

/// The content of a message to a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SamplingContent(Value);

impl SamplingContent {
    /// An image; `data` is base64.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        SamplingContent(json!({ "type": "image", "data": data.into(), "mimeType": mime_type.into() }))
    }

    /// A sound; `data` is base64. Since 2025-03-26.
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        SamplingContent(json!({ "type": "audio", "data": data.into(), "mimeType": mime_type.into() }))
    }

    /// Content written by hand, such as the result of a tool (since 2025-11-25).
    pub fn json(content: Value) -> Self {
        SamplingContent(content)
    }
}

impl From<&str> for SamplingContent {
    fn from(text: &str) -> Self {
        SamplingContent(json!({ "type": "text", "text": text }))
    }
}

impl From<String> for SamplingContent {
    fn from(text: String) -> Self {
        SamplingContent(json!({ "type": "text", "text": text }))
    }
}

/// The answer of a model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SampledMessage {
    /// The content blocks. Before 2025-11-25 there is exactly one.
    #[serde(deserialize_with = "one_or_many")]
    pub content: Vec<Value>,
    /// The name of the model.
    pub model: String,
    /// The reason why the model stopped, such as `endTurn` or `maxTokens`.
    #[serde(default)]
    pub stop_reason: Option<String>,
}

impl SampledMessage {
    /// The text of all text blocks.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter(|block| block["type"] == "text");
        texts.filter_map(|block| block["text"].as_str()).collect()
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(content: D) -> Result<Vec<Value>, D::Error> {
    Ok(match Value::deserialize(content)? {
        Value::Array(blocks) => blocks,
        block => vec![block],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_the_shape_of_the_schema() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let plain = SamplingRequest::new("hi", 5);
        assert_eq!(
            serde_json::to_value(plain).unwrap(),
            json!({ "messages": [{ "role": "user", "content": text("hi") }], "maxTokens": 5 })
        );
        let full = SamplingRequest::new(SamplingContent::image("aGk=", "image/png"), 5)
            .assistant("yes".to_owned())
            .user(SamplingContent::audio("aGk=", "audio/wav"))
            .user(SamplingContent::json(json!([text("a")])))
            .system_prompt("s")
            .temperature(0.5)
            .temperature(f64::NAN)
            .stop_sequence("x")
            .model_preferences(json!({ "costPriority": 1 }));
        assert_eq!(
            serde_json::to_value(full).unwrap(),
            json!({
                "messages": [
                    { "role": "user", "content": { "type": "image", "data": "aGk=", "mimeType": "image/png" } },
                    { "role": "assistant", "content": text("yes") },
                    { "role": "user", "content": { "type": "audio", "data": "aGk=", "mimeType": "audio/wav" } },
                    { "role": "user", "content": [text("a")] },
                ],
                "maxTokens": 5,
                "systemPrompt": "s",
                "stopSequences": ["x"],
                "modelPreferences": { "costPriority": 1 },
            })
        );
    }

    #[test]
    fn answer_is_one_block_or_a_list() {
        let read = |content: Value| {
            let message = json!({ "role": "assistant", "content": content, "model": "m", "stopReason": "endTurn" });
            serde_json::from_value::<SampledMessage>(message).unwrap()
        };
        let text = |text: &str| json!({ "type": "text", "text": text });
        assert_eq!(read(text("Paris")).text(), "Paris");
        let several = read(json!([text("a"), { "type": "image", "data": "", "text": "no" }, text("b")]));
        assert_eq!((several.text().as_str(), several.content.len()), ("ab", 3));
        assert_eq!(several.stop_reason.as_deref(), Some("endTurn"));
        assert!(serde_json::from_value::<SampledMessage>(json!({ "content": text("a") })).is_err());
    }
}
