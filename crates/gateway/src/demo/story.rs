//! The story of the demo: a cut connection, a killed gateway, and every event once.
//!
//! The story checks its own promise. A missing, repeated or misplaced event is a failure of the demo.

use super::client::{DemoClient, EventConnection, StreamEvent};
use super::gateway_process::{GatewayCommand, GatewayProcess};
use super::printer::Printer;
use super::start_failure;
use crate::exit::{Exit, Failure};
use crate::http_client::ClientError;
use crate::output::Styles;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A pause in which a person can read.
const READING_PAUSE: Duration = Duration::from_millis(1500);
/// How long the first call has no reader.
const GAP_WITHOUT_READER: Duration = Duration::from_millis(1200);
/// The length of the first call, in seconds.
const FIRST_SECONDS: u64 = 4;
/// The length of the call that ends before the gateway is killed, in seconds.
const SHORT_SECONDS: u64 = 2;
/// The length of the call that runs when the gateway is killed, in seconds.
const LONG_SECONDS: u64 = 60;

/// Prints the whole story. At its end `gateway` is the process that was started last.
pub(super) async fn tell(
    command: &GatewayCommand,
    gateway: &mut Option<GatewayProcess>,
    printer: Printer,
) -> Result<(), Failure> {
    let mut story = Story {
        printer,
        start: Instant::now(),
        events: 0,
    };
    let told = story.tell(command, gateway).await;
    told.map_err(|error| match error.downcast::<Failure>() {
        Ok(failure) => *failure,
        Err(error) => Failure::new(Exit::Failure, format!("the demo failed: {error}")),
    })
}

struct Story {
    printer: Printer,
    start: Instant,
    /// All events so far.
    events: usize,
}

/// A call as its client knows it.
struct TracedCall {
    request_id: u64,
    /// The last event, as its stream and its number.
    cursor: Option<(String, u64)>,
    outcome: Option<CallOutcome>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    Answer,
    Error,
}

impl Story {
    async fn tell(&mut self, command: &GatewayCommand, slot: &mut Option<GatewayProcess>) -> Result<(), ClientError> {
        let gateway = slot.as_ref().ok_or("there is no gateway")?;
        let (address, pid) = (gateway.address, gateway.pid);
        let Styles { bold, plain, .. } = self.printer.styles();
        let title = format!("{bold}A call that survives its connection, and an answer that survives its server{plain}");
        self.printer.line(&title);
        self.note(&format!("The gateway is process {pid} at http://{address}/mcp."));
        sleep(READING_PAUSE).await;

        self.printer.title(
            1,
            &format!("A client starts a call that takes {FIRST_SECONDS} seconds."),
        );
        let mut client = DemoClient::open(address).await?;
        self.say(&format!("session {}", client.session));
        let (mut stream, id) = client.countdown(FIRST_SECONDS).await?;
        let mut first = TracedCall::new(id);
        self.read_until(&mut stream, &mut first, |call| call.seen() >= 3)
            .await?;

        self.printer
            .title(2, "Its connection is cut. The call continues without a reader.");
        drop(stream);
        self.alarm("the client closed its socket");
        sleep(GAP_WITHOUT_READER).await;

        let cursor = first.cursor();
        self.printer
            .title(3, &format!("The client returns with Last-Event-ID: {cursor}."));
        let mut stream = client.resume(&cursor).await?;
        self.read_until(&mut stream, &mut first, TracedCall::is_over).await?;
        first.expect(CallOutcome::Answer)?;
        self.good("no event is missing, and none came twice");
        sleep(READING_PAUSE).await;

        self.printer.title(
            4,
            &format!("Two more calls: A takes {SHORT_SECONDS} seconds, B takes {LONG_SECONDS}."),
        );
        let (mut stream, id) = client.countdown(SHORT_SECONDS).await?;
        let mut short = TracedCall::new(id);
        self.read_until(&mut stream, &mut short, |call| call.seen() >= 1)
            .await?;
        drop(stream);
        self.alarm("the client closed the socket of A; its answer will have no reader");
        let (mut stream, id) = client.countdown(LONG_SECONDS).await?;
        let mut long = TracedCall::new(id);
        // Both calls tick twice a second, and A is older. So A has answered before this tick of B.
        self.read_until(&mut stream, &mut long, |call| call.seen() > 2 * SHORT_SECONDS)
            .await?;

        self.printer.title(5, &format!("The gateway is killed: kill -9 {pid}"));
        let gateway = slot.take().ok_or("there is no gateway")?;
        let status = gateway.kill().await?;
        self.alarm(&format!("process {pid} ended: {status}"));
        if self.read_until(&mut stream, &mut long, |_| false).await.is_ok() {
            return Err("the connection of B outlived the gateway".into());
        }
        self.alarm("the connection of B broke");
        if client.resume(&short.cursor()).await.is_ok() {
            return Err("the gateway answered after its end".into());
        }
        self.alarm("nothing answers at this address now");
        sleep(READING_PAUSE).await;

        self.printer
            .title(6, "A new process starts on the same data. The client resumes A and B.");
        let started = command
            .start(address)
            .await
            .map_err(|error| start_failure(address, error))?;
        let pid = started.pid;
        *slot = Some(started);
        self.say(&format!("the gateway is process {pid} now"));
        self.say(&format!("A: Last-Event-ID: {}", short.cursor()));
        let mut stream = client.resume(&short.cursor()).await?;
        self.read_until(&mut stream, &mut short, TracedCall::is_over).await?;
        short.expect(CallOutcome::Answer)?;
        self.good("the answer of A was stored before the kill, and is delivered now");
        sleep(READING_PAUSE).await;
        self.say(&format!("B: Last-Event-ID: {}", long.cursor()));
        let mut stream = client.resume(&long.cursor()).await?;
        self.read_until(&mut stream, &mut long, TracedCall::is_over).await?;
        long.expect(CallOutcome::Error)?;
        self.good("B could not finish, and its client knows: no call hangs");
        self.printer.line("");
        let seconds = self.start.elapsed().as_secs_f64();
        let summary = format!(
            "{} events in {seconds:.0} seconds: each one once, in order, on its own stream.",
            self.events
        );
        self.printer.line(&format!("{bold}{summary}{plain}"));
        self.printer.line("");
        Ok(())
    }

    /// Prints and checks events until `stop` holds. The end of the stream before is an error.
    async fn read_until(
        &mut self,
        stream: &mut EventConnection,
        call: &mut TracedCall,
        stop: impl Fn(&TracedCall) -> bool,
    ) -> Result<(), ClientError> {
        while !stop(call) {
            let event = stream.next().await?.ok_or("the stream ended too early")?;
            call.record(&event)?;
            self.events += 1;
            self.print_event(&event);
        }
        Ok(())
    }

    fn print_event(&self, StreamEvent { id, message }: &StreamEvent) {
        let Styles { bold, plain, .. } = self.printer.styles();
        let text = match message {
            None => "the stream is open".to_owned(),
            Some(message) => describe(message),
        };
        self.say(&format!("event {bold}{id:<8}{plain} {text}"));
    }

    fn say(&self, line: &str) {
        self.printer.at(self.start.elapsed(), line);
    }

    fn alarm(&self, line: &str) {
        let Styles { red, plain, .. } = self.printer.styles();
        self.say(&format!("{red}{line}{plain}"));
    }

    fn good(&self, line: &str) {
        let Styles { green, plain, .. } = self.printer.styles();
        self.say(&format!("{green}{line}{plain}"));
    }

    fn note(&self, line: &str) {
        let Styles { dim, plain, .. } = self.printer.styles();
        self.printer.line(&format!("{dim}{line}{plain}"));
    }
}

/// A message of a countdown for people.
fn describe(message: &Value) -> String {
    if let Some(text) = message["result"]["content"][0]["text"].as_str() {
        return format!("answer to request {}: {text}", message["id"]);
    }
    if let Some(text) = message["error"]["message"].as_str() {
        return format!("error for request {}: {text}", message["id"]);
    }
    let params = &message["params"];
    let left = params["message"].as_str().unwrap_or_default();
    format!("progress {} of {}: {left}", params["progress"], params["total"])
}

impl TracedCall {
    fn new(request_id: u64) -> Self {
        TracedCall {
            request_id,
            cursor: None,
            outcome: None,
        }
    }

    /// The number of the last event. The event that opens the stream has number 0.
    fn seen(&self) -> u64 {
        self.cursor.as_ref().map_or(0, |(_, seq)| *seq)
    }

    fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// The id of the last event.
    fn cursor(&self) -> String {
        let cursor = self.cursor.as_ref();
        cursor.map_or_else(String::new, |(stream, seq)| format!("{stream}-{seq}"))
    }

    /// Takes the next event. It must be the successor of the last one, and nothing follows the answer.
    fn record(&mut self, event: &StreamEvent) -> Result<(), ClientError> {
        let id = &event.id;
        let parsed = id
            .rsplit_once('-')
            .and_then(|(stream, seq)| Some((stream.to_owned(), seq.parse().ok()?)));
        let (stream, seq) = parsed.ok_or_else(|| format!("the event id {id} is invalid"))?;
        let expected = match &self.cursor {
            Some((stream, seq)) => (stream.clone(), seq + 1),
            None => (stream.clone(), 0),
        };
        if (&stream, seq) != (&expected.0, expected.1) || self.is_over() {
            return Err(format!("event {id} came instead of {}-{}", expected.0, expected.1).into());
        }
        self.cursor = Some((stream, seq));
        let Some(message) = &event.message else {
            return Ok(());
        };
        if message.get("method").is_some() {
            return Ok(());
        }
        if message["id"] != self.request_id {
            return Err(format!("event {id} answers another request").into());
        }
        self.outcome = Some(match message.get("result") {
            Some(_) => CallOutcome::Answer,
            None => CallOutcome::Error,
        });
        Ok(())
    }

    fn expect(&self, outcome: CallOutcome) -> Result<(), ClientError> {
        if self.outcome == Some(outcome) {
            return Ok(());
        }
        Err(format!(
            "request {} ended with {:?}, not with {outcome:?}",
            self.request_id, self.outcome
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(id: &str, message: Option<Value>) -> StreamEvent {
        StreamEvent {
            id: id.to_owned(),
            message,
        }
    }

    fn progress() -> Option<Value> {
        Some(json!({ "method": "notifications/progress", "params": {} }))
    }

    #[test]
    fn traced_call_refuses_gaps_repeats_and_other_streams() {
        for wrong in ["1-1", "1-3", "3-2", "1-x", "12"] {
            let mut call = TracedCall::new(7);
            call.record(&event("1-0", None)).unwrap();
            call.record(&event("1-1", progress())).unwrap();
            assert!(call.record(&event(wrong, progress())).is_err(), "{wrong}");
            assert_eq!(call.cursor(), "1-1");
        }
    }

    #[test]
    fn traced_call_ends_with_its_own_answer() {
        let mut call = TracedCall::new(7);
        call.record(&event("1-0", None)).unwrap();
        let other = event("1-1", Some(json!({ "id": 8, "result": {} })));
        assert!(call.record(&other).is_err());
        let mut call = TracedCall::new(7);
        call.record(&event("1-0", Some(json!({ "id": 7, "error": {} }))))
            .unwrap();
        assert!(call.expect(CallOutcome::Answer).is_err());
        assert!(call.expect(CallOutcome::Error).is_ok());
        assert!(
            call.record(&event("1-1", progress())).is_err(),
            "nothing follows the end"
        );
    }
}
