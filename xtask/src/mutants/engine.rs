//! Mutants of the stream engine in `proto::stream` and of the response engine in `proto::exchange`.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "frames are sent before the store acknowledges them",
        file: "stream/write.rs",
        code: "        Some(batch)\n    }\n\n    /// The outcome of the append in flight",
        mutated: "        let WriterState::Appending(in_flight) = &mut self.state else { return None };\n        for run in std::mem::take(&mut in_flight.runs) {\n            self.offer(params, run);\n        }\n        Some(batch)\n    }\n\n    /// The outcome of the append in flight",
    },
    Mutant {
        name: "a run that the reader has seen is sent again",
        file: "stream/write.rs",
        code: "if run.last <= reader.taken && run.last > Seq::PRIMING {",
        mutated: "if false && run.last <= reader.taken {",
    },
    Mutant {
        name: "a partly read run is sent completely",
        file: "stream/write.rs",
        code: "let is_half_seen = reader.taken > Seq::PRIMING && run.first <= reader.taken;",
        mutated: "let is_half_seen = false;",
    },
    Mutant {
        name: "a displaced reader is not woken",
        file: "stream/read.rs",
        code: "        self.wake_reader(&mut effects); // the displaced reader\n",
        mutated: "",
    },
    Mutant {
        name: "messages keep their ids in an outage",
        file: "stream/write.rs",
        code: "for run in runs.iter().filter_map(FrameRun::without_ids) {",
        mutated: "for run in runs {",
    },
    Mutant {
        name: "a reader that catches up stays open in an outage",
        file: "stream/write.rs",
        code: "            if is_unlogged {\n                // This message is not in the store.",
        mutated: "            if false {\n                // This message is not in the store.",
    },
    Mutant {
        name: "a seal ends the stream with the batch in flight",
        file: "stream/write.rs",
        code: "        if in_flight.seals {\n            self.close(CloseReason::Sealed, effects);",
        mutated: "        if self.sealing {\n            self.close(CloseReason::Sealed, effects);",
    },
    Mutant {
        name: "a flush leaves the stream buffering",
        file: "stream/write.rs",
        code: "WriterState::Appending(in_flight) => in_flight.buffering = false,",
        mutated: "WriterState::Appending(_) => {}",
    },
    Mutant {
        name: "a reader counts as caught up one event too late",
        file: "stream/read.rs",
        code: "let mut is_caught_up = self.appended.is_none_or(|appended| cursor >= appended);",
        mutated: "let mut is_caught_up = self.appended.is_none_or(|appended| cursor > appended);",
    },
    Mutant {
        name: "a reader counts as caught up one event too early",
        file: "stream/read.rs",
        code: "let mut is_caught_up = self.appended.is_none_or(|appended| cursor >= appended);",
        mutated: "let mut is_caught_up = self.appended.is_none_or(|appended| cursor.next() >= appended);",
    },
    Mutant {
        name: "a close overtakes pending events",
        file: "stream/read.rs",
        code: "if let Some(close) = reader.close.filter(|_| !is_pending) {",
        mutated: "if let Some(close) = reader.close {",
    },
    Mutant {
        name: "the stream counts as stored before the acknowledgement",
        file: "stream/write.rs",
        code: "        self.append_due = false;\n        self.binding = self.bound.take();",
        mutated: "        self.append_due = false;\n        self.in_store = true;\n        self.binding = self.bound.take();",
    },
    Mutant {
        name: "a late acknowledgement revives a stopped stream",
        file: "stream/write.rs",
        code: "            return effects; // the stream has closed",
        mutated: "            self.state = WriterState::Ready;\n            return effects;",
    },
    Mutant {
        name: "two appends are in flight",
        file: "stream/write.rs",
        code: "            _ => return None,\n        };\n        if !due {",
        mutated: "            WriterState::Appending(_) => (!self.queue.is_empty(), false),\n            _ => return None,\n        };\n        if !due {",
    },
    Mutant {
        name: "a failed append that was stored is forgotten",
        file: "stream/core.rs",
        code: "self.in_store || self.in_doubt.is_some()",
        mutated: "self.in_store",
    },
    Mutant {
        name: "the reader is not woken when a run is stored",
        file: "stream/write.rs",
        code: "            self.close(CloseReason::Sealed, effects);\n        } else {\n            self.wake_reader(effects);",
        mutated: "            self.close(CloseReason::Sealed, effects);\n        } else {",
    },
    Mutant {
        name: "the reader is not woken when the stream closes",
        file: "stream/core.rs",
        code: "        effects.room = true;\n        self.wake_reader(effects);\n    }",
        mutated: "        effects.room = true;\n    }",
    },
    Mutant {
        name: "a released question stays retained when its release fails",
        file: "stream/write.rs",
        code: "                self.released.extend(in_flight.released);\n",
        mutated: "",
    },
    Mutant {
        name: "an unannounced gap is read over",
        file: "stream/reader.rs",
        code: "if has_gap && page.status.purged > self.known_gap {",
        mutated: "if false && has_gap {",
    },
    Mutant {
        name: "a resume of an ended stream without new events does not confirm the cursor",
        file: "stream/reader.rs",
        code: "} else if chunk.is_empty() && self.confirms_cursor {",
        mutated: "} else if false {",
    },
    Mutant {
        name: "eviction takes a retained event",
        file: "stream/retention.rs",
        code: "    retain == Retain::None\n",
        mutated: "    retain != Retain::Answer\n",
    },
    Mutant {
        name: "eviction takes the newest event",
        file: "stream/retention.rs",
        code: "held.take(newest).position(may_be_evicted)",
        mutated: "held.take(newest + 1).position(may_be_evicted)",
    },
    Mutant {
        name: "a message that does not fit closes a connection-bound stream",
        file: "stream/write.rs",
        code: r#"let fits = cause == UnloggedCause::ConnectionBound || self.live.fits(1, message.size(), &params.limits);"#,
        mutated: r#"let fits = self.live.fits(1, message.size(), &params.limits);"#,
    },
    Mutant {
        name: "parked reply is not kept",
        file: "exchange.rs",
        code: r#"                self.state = State::WaitingForInput { replied: true };
                Reply::Keep"#,
        mutated: r#"                self.state = State::WaitingForInput { replied: false };
                Reply::Keep"#,
    },
    Mutant {
        name: "parked reply goes to the request before",
        file: "exchange.rs",
        code: r#"            State::WaitingForInput { .. } => {
                self.state = State::WaitingForInput { replied: true };
                Reply::Keep"#,
        mutated: r#"            State::WaitingForInput { .. } => {
                self.state = State::Done;
                Reply::Deliver { seals: true }"#,
    },
    Mutant {
        name: "retry is used twice",
        file: "exchange.rs",
        code: r#"        let State::WaitingForInput { replied } = self.state else {
            return None;
        };"#,
        mutated: r#"        let replied = matches!(self.state, State::WaitingForInput { replied: true });"#,
    },
    Mutant {
        name: "batch is sealed by its first reply",
        file: "exchange.rs",
        code: r#"        let is_last = self.open_replies == 0;"#,
        mutated: r#"        let is_last = true;"#,
    },
    Mutant {
        name: "a lost client cancels a parked call",
        file: "exchange.rs",
        code: r#"            State::Held | State::Streaming if !self.rules.survives_disconnect => ClientGone::Cancel,"#,
        mutated: r#"            State::Held | State::Streaming | State::WaitingForInput { .. } if !self.rules.survives_disconnect => {
                ClientGone::Cancel
            }"#,
    },
    Mutant {
        name: "a lost client cancels a call that it may resume",
        file: "exchange.rs",
        code: r#"            survives_disconnect: !version.disconnect_cancels(),"#,
        mutated: r#"            survives_disconnect: false,"#,
    },
    Mutant {
        name: "reply ends the stream of a session",
        file: "exchange.rs",
        code: r#"seals: self.ends_stream() && self.rules.ends_with_last_reply,"#,
        mutated: r#"seals: self.ends_stream(),"#,
    },
    Mutant {
        name: "message after the parked reply is kept",
        file: "exchange.rs",
        code: r#"            State::WaitingForInput { replied: true } | State::Done => Emit::TooLate,"#,
        mutated: r#"            State::WaitingForInput { replied: true } => Emit::Keep,
            State::Done => Emit::TooLate,"#,
    },
];
