//! Mutants of the parts of `proto` that several nodes need: readers and queues of streams, gaps, leases, routes and
//! forwards.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "remote reader survives a local attach",
        file: "stream/read.rs",
        code: "// the displaced reader\n        effects.displaced = self.displace_remote();\n",
        mutated: "// the displaced reader\n",
    },
    Mutant {
        name: "late report revives a displaced remote reader",
        file: "stream/remote.rs",
        code: "        if self.displaced.as_deref() == Some(&token) {",
        mutated: "        if false {",
    },
    Mutant {
        name: "local reader is not woken when a remote one displaces it",
        file: "stream/remote.rs",
        code: "        self.wake_reader(&mut effects); // its next `take` is the end\n",
        mutated: "",
    },
    Mutant {
        name: "writer does not wait for a remote reader",
        file: "stream/read.rs",
        code: "            Attached::Remote(reader) => (reader.position, reader.taken_bytes),",
        mutated: "            Attached::Remote(_) => return Room::Free,",
    },
    Mutant {
        name: "bytes of a remote reader do not count",
        file: "stream/remote.rs",
        code: "        self.marks.push_back((last, total_bytes));",
        mutated: "        self.taken_bytes = total_bytes;",
    },
    Mutant {
        name: "remote reader does not report that it has everything",
        file: "stream/reader.rs",
        code: "RemoteRead::Page(page) => self.page(params, Some(page), |_, _| false),",
        mutated: "RemoteRead::Page(page) => self.page(params, Some(page), |_, _| true),",
    },
    Mutant {
        name: "message emitted during a bind keeps its preliminary number",
        file: "stream/bind.rs",
        code: "        self.numbering = Numbering { next: first };\n",
        mutated: "",
    },
    Mutant {
        name: "bind starts while messages are queued",
        file: "stream/bind.rs",
        code: "matches!(self.state, WriterState::Ready) && self.queue.is_empty();",
        mutated: "matches!(self.state, WriterState::Ready);",
    },
    Mutant {
        name: "gap of an append is not announced",
        file: "stream/log.rs",
        code: "            self.last = Some(gap);\n            self.purged = retention::evicted_up_to(self.purged, gap);",
        mutated: "            self.last = Some(gap);",
    },
    Mutant {
        name: "gap is forgotten before the store has it",
        file: "stream/write.rs",
        code: "            gap: self.gap,\n",
        mutated: "            gap: self.gap.take(),\n",
    },
    Mutant {
        name: "numbers that a client has seen are reused after a loss",
        file: "stream/write.rs",
        code: "stored.max(Some(self.proposed)).map_or(Seq::FIRST, Seq::next)",
        mutated: "stored.map_or(Seq::FIRST, Seq::next)",
    },
    Mutant {
        name: "refused writer of an earlier epoch appends after a gap",
        file: "stream.rs",
        code: "epoch <= self.epoch && last < Some(before)",
        mutated: "last < Some(before) || epoch > self.epoch",
    },
    Mutant {
        name: "resume ahead of the store does not announce messages without ids",
        file: "stream/resume.rs",
        code: "            gap: unlogged,\n",
        mutated: "            gap: false,\n",
    },
    Mutant {
        name: "page and live buffer show the same event",
        file: "stream/read.rs",
        code: "            if !self.live.skip_to(cursor) {",
        mutated: "            if false {",
    },
    Mutant {
        name: "lease is measured from the result of the renewal",
        file: "cluster/lease.rs",
        code: "                clock.renewed(renewal.sent);",
        mutated: "                clock.renewed(now);",
    },
    Mutant {
        name: "renewal kills a node that was found after it was sent",
        file: "cluster/members.rs",
        code: "!reported.contains(node) && *since <= sent;",
        mutated: "!reported.contains(node);",
    },
    Mutant {
        name: "late report revives a dead node",
        file: "cluster/members.rs",
        code: "        if self.dead.contains(node) {\n            return false;\n        }\n        if is_alive {",
        mutated: "        if is_alive {\n            self.dead.remove(node);",
    },
    Mutant {
        name: "unknown owner counts as dead",
        file: "cluster/route.rs",
        code: "                Liveness::Unknown => CallPlace::Check(owner.clone()),",
        mutated: "                Liveness::Unknown => CallPlace::Claim(Some(owner.clone())),",
    },
    Mutant {
        name: "forwarded call is forwarded again",
        file: "cluster/route.rs",
        code: "                Liveness::Alive if self.is_forwarded => CallPlace::Moved,\n",
        mutated: "",
    },
    Mutant {
        name: "answer of a closed view was never asked for",
        file: "cluster/route.rs",
        code: "_ if (1..=session.last_epoch).contains(&epoch)",
        mutated: "_ if (1..session.epoch).contains(&epoch)",
    },
    Mutant {
        name: "request that may have run is routed again",
        file: "cluster/forward.rs",
        code: "            Claim::Won | Claim::Lost => self.end(ForwardStep::Fail),",
        mutated: "            Claim::Won | Claim::Lost => self.end(ForwardStep::RouteAgain),",
    },
    Mutant {
        name: "claim counts after the store may have forgotten one",
        file: "cluster/forward.rs",
        code: "            Claim::Won if !self.claims_may_be_lost => self.end(ForwardStep::RouteAgain),",
        mutated: "            Claim::Won => self.end(ForwardStep::RouteAgain),",
    },
    Mutant {
        name: "forwarded request runs without a lease",
        file: "cluster/forward.rs",
        code: "        if !lease_holds {\n            return self.end();",
        mutated: "        if false {\n            return self.end();",
    },
    Mutant {
        name: "lost claim runs the request",
        file: "cluster/forward.rs",
        code: "            Claim::Lost if !in_doubt => self.end(),",
        mutated: "            Claim::Lost if false => self.end(),",
    },
];
