//! Where the messages of a POST go: nowhere yet, into a stream, or to nobody (design D5).

use crate::session::Session;
use crate::stream::Stream;
use crate::stream::reader_body::ReaderBody;
use bytes::Bytes;
use parking_lot::Mutex;
use rethread_proto::event_id::Seq;
use rethread_proto::exchange::{Emit, End, Exchange};
use rethread_proto::jsonrpc::RequestId;
use rethread_proto::sse::{Draft, EncodeMessage};
use rethread_proto::stream::{Framing, ReaderStart};
use rethread_store::Retain;
use std::sync::Arc;
use std::task::Waker;

/// The answer to one POST, shared by its calls.
pub(crate) struct Outlet {
    pub(crate) session: Arc<Session>,
    state: Mutex<State>,
}

struct State {
    exchange: Exchange,
    calls: Calls,
    stream: Option<Arc<Stream>>,
    /// Attached, and waiting to become the response body.
    reader: Option<ReaderBody>,
    /// Wakes the POST that waits for the form of its answer.
    waker: Option<Waker>,
    cancelled: bool,
}

/// The requests that a stream would answer: nearly always one, which then costs no allocation.
enum Calls {
    None,
    One(RequestId),
    Batch(Vec<RequestId>),
}

impl Calls {
    fn as_slice(&self) -> &[RequestId] {
        match self {
            Calls::None => &[],
            Calls::One(call) => std::slice::from_ref(call),
            Calls::Batch(calls) => calls,
        }
    }
}

/// The call is over: nothing more can be said.
pub(crate) struct TooLate;

/// Where a message went.
pub(crate) struct Said {
    pub(crate) stream: Arc<Stream>,
    pub(crate) seq: Seq,
}

impl Outlet {
    /// For a single request: the form of the answer is open.
    pub(crate) fn single(session: &Arc<Session>, call: RequestId) -> Arc<Self> {
        Arc::new(Outlet {
            session: Arc::clone(session),
            state: Mutex::new(State {
                exchange: Exchange::single(),
                calls: Calls::One(call),
                stream: None,
                reader: None,
                waker: None,
                cancelled: false,
            }),
        })
    }

    /// For a batch: a stream from the start, and the connection that reads it.
    pub(crate) fn batch(session: &Arc<Session>, calls: Vec<RequestId>) -> (Arc<Self>, ReaderBody) {
        let mut state = State {
            exchange: Exchange::batch(calls.len()),
            calls: Calls::Batch(calls),
            stream: None,
            reader: None,
            waker: None,
            cancelled: false,
        };
        state.open(session).flush();
        let reader = state.reader.take().expect("a stream was just opened");
        let outlet = Outlet {
            session: Arc::clone(session),
            state: Mutex::new(state),
        };
        (Arc::new(outlet), reader)
    }

    /// For a session whose every message goes to one stream, answers included (LEG-02). It never ends with a call.
    pub(crate) fn shared(session: &Arc<Session>, stream: Arc<Stream>) -> Arc<Self> {
        Arc::new(Outlet {
            session: Arc::clone(session),
            state: Mutex::new(State {
                exchange: Exchange::batch(usize::MAX),
                calls: Calls::None,
                stream: Some(stream),
                reader: None,
                waker: None,
                cancelled: false,
            }),
        })
    }

    /// Says something that belongs to a call. `None` if nobody can ever hear it.
    pub(crate) fn say(&self, words: impl EncodeMessage, retain: Retain) -> Result<Option<Said>, TooLate> {
        let (stream, waker) = {
            let mut state = self.state.lock();
            match state.exchange.emit() {
                Emit::Start => (state.open(&self.session), state.waker.take()),
                Emit::Append => (state.stream.clone().ok_or(TooLate)?, None),
                Emit::Discard => return Ok(None),
                Emit::TooLate => return Err(TooLate),
            }
        };
        wake(waker);
        self.bind_pushed(&stream);
        let seq = stream.emit(words, retain, false).map_err(|_| TooLate)?;
        Ok(Some(Said { stream, seq }))
    }

    /// Makes the answer a stream, if its form is still open.
    pub(crate) fn upgrade(&self) {
        let (stream, waker) = {
            let mut state = self.state.lock();
            let stream = state.exchange.upgrade().then(|| state.open(&self.session));
            let waker = if stream.is_some() { state.waker.take() } else { None };
            (stream, waker)
        };
        wake(waker);
        if let Some(stream) = stream {
            stream.flush();
        }
    }

    /// A call ends with an answer. `Some` if it is the whole answer to the POST.
    pub(crate) fn end(&self, answer: impl FnOnce(&mut Vec<u8>), expected: usize) -> Option<Bytes> {
        let (end, stream) = self.end_exchange();
        match (end, stream) {
            (End::Json, _) => {
                let mut body = Vec::with_capacity(expected);
                answer(&mut body);
                Some(Bytes::from(body))
            }
            (End::Append { seals }, Some(stream)) => {
                self.bind_pushed(&stream);
                // An error here says that the session is gone, and the reader with it.
                let _ = stream.emit(Draft::new(expected, answer), Retain::Answer, seals);
                None
            }
            _ => None,
        }
    }

    /// A call ends without an answer: it was cancelled (CAN-01).
    pub(crate) fn end_cancelled(&self) {
        let (end, stream) = self.end_exchange();
        match (end, stream) {
            (End::Json, _) => {
                let mut state = self.state.lock();
                state.cancelled = true;
                let waker = state.waker.take();
                drop(state);
                wake(waker);
            }
            (End::Append { seals: true }, Some(stream)) => stream.seal(),
            _ => {}
        }
    }

    /// On the one stream of a session, messages keep the order in which a handler emitted them.
    fn bind_pushed(&self, stream: &Arc<Stream>) {
        if stream.params.framing != Framing::Numbered {
            self.session.push.bind_before_call_message(stream);
        }
    }

    fn end_exchange(&self) -> (End, Option<Arc<Stream>>) {
        let mut state = self.state.lock();
        (state.exchange.end(), state.stream.clone())
    }

    /// The client hung up. True if it can never come back for this answer.
    pub(crate) fn client_left(&self) -> bool {
        let mut state = self.state.lock();
        let reader = state.reader.take();
        let unreachable = state.exchange.client_left();
        let stream = state.stream.clone();
        drop(state);
        drop(reader); // outside of the lock: detaching takes others
        if let Some(stream) = stream {
            stream.flush();
        }
        unreachable
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.state.lock().exchange.is_unreachable()
    }

    /// The connection for the response, if the answer has become a stream. What was said until now is appended together.
    pub(crate) fn take_reader(&self) -> Option<ReaderBody> {
        let (reader, stream) = {
            let mut state = self.state.lock();
            (state.reader.take()?, state.stream.clone())
        };
        if let Some(stream) = stream {
            stream.flush();
        }
        Some(reader)
    }

    /// Whether the one call was cancelled before its answer took form. If not, and nothing else is known, `waker` is
    /// kept until something is.
    pub(crate) fn is_cancelled_or_register(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if !state.cancelled {
            match &mut state.waker {
                Some(kept) => kept.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        state.cancelled
    }

    /// The stream, once there is one.
    pub(crate) fn stream(&self) -> Option<Arc<Stream>> {
        self.state.lock().stream.clone()
    }
}

impl State {
    fn open(&mut self, session: &Arc<Session>) -> Arc<Stream> {
        let stream = session.open_call_stream(self.calls.as_slice());
        let reader = session.open_reader(Arc::clone(&stream), ReaderStart::default(), false);
        self.reader = Some(reader);
        self.stream = Some(Arc::clone(&stream));
        stream
    }
}

/// Wakes the POST. Call it without the lock.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
