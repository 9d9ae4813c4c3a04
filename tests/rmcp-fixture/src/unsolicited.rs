//! Tools that send messages outside of calls, to this session or to all sessions.

#![expect(deprecated)] // clients still use logging

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer, schemars, tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::EverythingServer;
use crate::changes::Change;
use crate::emit::{has_sessions, message, to_error_data};
use crate::load_tools::{number_default, padded};
use crate::resources::WATCHED;

#[derive(Deserialize, JsonSchema)]
struct Push {
    #[serde(default = "number_default::<1>")]
    count: u64,
    #[serde(default)]
    tag: String,
}

#[derive(Deserialize, JsonSchema)]
struct NotifySelf {
    #[serde(default = "number_default::<1>")]
    events: u64,
    #[serde(default = "number_default::<32>")]
    bytes: u64,
    #[serde(default)]
    tag: String,
}

#[derive(Deserialize, JsonSchema)]
struct NotifyAll {
    #[serde(default)]
    kind: Option<Kind>,
    #[serde(default)]
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Message,
    Tools,
    Prompts,
    Resources,
    Updated,
}

#[tool_router(router = unsolicited_tools, vis = "pub(crate)")]
impl EverythingServer {
    #[tool(description = "Sends messages to this session that belong to no call")]
    async fn push(&self, Parameters(args): Parameters<Push>) -> Result<String, ErrorData> {
        let session = self.peer()?;
        for n in 1..=args.count {
            let message = message("fixture", json!({ "push": args.tag, "n": n }));
            session.notify_logging_message(message).await.map_err(to_error_data)?;
        }
        Ok(format!("pushed {}", args.count))
    }

    #[tool(description = "Sends padded messages to this session that belong to no call")]
    async fn notify_self(&self, Parameters(args): Parameters<NotifySelf>) -> Result<String, ErrorData> {
        let session = self.peer()?;
        for event in 1..=args.events {
            let data = padded(format!("{} {event} ", args.tag), args.bytes)?;
            let message = message("fixture", data.into());
            session.notify_logging_message(message).await.map_err(to_error_data)?;
        }
        Ok(format!("notified {}", args.events))
    }

    #[tool(description = "Sends one message to every session")]
    async fn notify_all(&self, Parameters(args): Parameters<NotifyAll>, context: RequestContext<RoleServer>) -> String {
        let usual = if has_sessions(&context) {
            Kind::Message
        } else {
            Kind::Tools
        };
        self.shared.changes.publish(match args.kind.unwrap_or(usual) {
            Kind::Message => Change::Message(args.text),
            Kind::Tools => Change::Tools,
            Kind::Prompts => Change::Prompts,
            Kind::Resources => Change::Resources,
            Kind::Updated => Change::Updated(WATCHED),
        });
        "notified".to_owned()
    }

    #[tool(description = "Says that the tools have changed")]
    async fn test_trigger_tool_change(&self) -> String {
        self.shared.changes.publish(Change::Tools);
        "notified".to_owned()
    }

    #[tool(description = "Says that the prompts have changed")]
    async fn test_trigger_prompt_change(&self) -> String {
        self.shared.changes.publish(Change::Prompts);
        "notified".to_owned()
    }

    /// The peer of this session, for messages outside of calls.
    fn peer(&self) -> Result<&Peer<RoleServer>, ErrorData> {
        let none = || ErrorData::invalid_params("this tool needs a session, which this revision does not have", None);
        self.session.peer.get().ok_or_else(none)
    }
}
