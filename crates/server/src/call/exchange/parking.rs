//! The part of an exchange for stateless calls that ask for input: park, and continue with a retry (D7).

use super::{Exchange, Requests, wake};
use crate::call::ask_error::AskError;
use crate::call::input::Question;
use crate::call::json_response;
use crate::call::request_meta::RequestMeta;
use crate::call::response_sink::ResponseSink;
use bytes::Bytes;
use rethread_proto::exchange::Reply;
use rethread_proto::mrtr::InputResponses;
use rethread_proto::sse::{AnyLines, OneLine};
use tokio::sync::oneshot;

impl Exchange {
    /// Asks a question that ends the response. The answer comes with a retry.
    pub(crate) fn ask(&self, method: &'static str, params: Bytes) -> Result<oneshot::Receiver<Bytes>, AskError> {
        let mut state = self.state.lock();
        if state.response.is_done() {
            return Err(AskError::Ended);
        }
        if state.input.open_questions() >= self.node.limits.questions_per_session() {
            return Err(AskError::TooMany);
        }
        let answer = state.input.ask(method, params);
        let (waiter, sink) = (state.waiter.take(), state.sink.clone());
        drop(state);
        wake(waiter);
        if let Some(sink) = sink {
            sink.wake_direct();
        }
        Ok(answer)
    }

    /// The request ends with its open questions, and the call waits for a retry under the name `id`. `None` if there is
    /// something else to send first.
    pub(crate) fn park(&self, id: u128) -> Option<Vec<Question>> {
        let mut state = self.state.lock();
        if !self.is_asking(&mut state) || state.reader.is_some() || !state.response.park() {
            return None;
        }
        state.sink = None;
        state.waiter = None;
        if state.input.holds_permit {
            self.node.park_call(self.principal());
        }
        Some(state.input.park(id))
    }

    /// How often the call was parked, and how many bytes it keeps now.
    pub(crate) fn parked_facts(&self) -> (u32, usize) {
        let input = &self.state.lock().input;
        (input.rounds, input.kept_bytes())
    }

    /// A retry takes the place of the request that the call was parked in: its answers go to those who wait for them, and it
    /// gets what was kept. False if the call does not wait any more.
    pub(crate) fn retry(&self, mut request: RequestMeta, responses: &InputResponses) -> bool {
        let mut state = self.state.lock();
        if !state.response.is_waiting_for_input() {
            return false;
        }
        if state.input.holds_permit {
            self.node.unpark_call(self.principal());
        }
        request.last_progress = state.requests.get(0).last_progress;
        let kept = state.input.take_kept(&request);
        let answered = state.input.answer(responses);
        let Some(retry) = state.response.retry(!kept.messages.is_empty()) else {
            return false;
        };
        state.requests = Requests::One(request.clone());
        if retry.opens {
            self.open(&mut state);
        }
        let sink = state.sink.clone();
        let json = kept
            .reply
            .map(|reply| json_response::encode(&self.node, &self.scope, &request, reply));
        let seals = json.is_some() && matches!(state.response.reply(), Reply::Deliver { seals: true });
        let mut effects = Vec::new();
        if let Some(ResponseSink::Direct(stream)) = &sink {
            let messages = kept.messages.into_iter().map(OneLine);
            effects.extend(
                messages
                    .flat_map(|message| stream.emit(message, false))
                    .map(|(_, effects)| effects),
            );
            if let Some(json) = &json {
                effects.extend(stream.emit(AnyLines(&json.message), seals).map(|(_, effects)| effects));
            }
        } else {
            state.json = json;
        }
        drop(state);
        if let Some(ResponseSink::Direct(stream)) = sink {
            effects.into_iter().for_each(|effects| stream.perform(effects));
        }
        for (waiter, response) in answered {
            let _ = waiter.send(response); // nobody waits any more: the call moved on
        }
        self.node.metrics.events.parked_messages_dropped(kept.dropped);
        true
    }
    /// The handler of a stateless call has ended: its permit is free.
    pub(crate) fn release_permit(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.input.holds_permit) {
            if state.response.is_waiting_for_input() {
                self.node.calls.leave_parked();
            } else {
                self.node.end_call(self.principal());
            }
        }
    }
}
