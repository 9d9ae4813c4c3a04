//! Mutants of the embedded store: the index, the engine and recovery.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a sealed stream retains its questions",
        file: "index/stream.rs",
        code: "        self.release(|event| event.retain == Retain::Question);\n",
        mutated: "",
    },
    Mutant {
        name: "an eviction leaves no gap",
        file: "index/stream.rs",
        code: "        self.purged = retention::evicted_up_to(self.purged, seq);\n",
        mutated: "",
    },
    Mutant {
        name: "moved events count twice",
        file: "index.rs",
        code: "                    self.segments.sub(from.segment, part);\n",
        mutated: "",
    },
    Mutant {
        name: "a tombstone forgets that an answer is lost",
        file: "index/stream.rs",
        code: "        self.answers_lost |= event.retain == Retain::Answer;\n",
        mutated: "",
    },
    Mutant {
        name: "a taken message stays in its queue",
        file: "index.rs",
        code: "session.change_queue(totals, |queue| queue.raise_floor(floor, segments));",
        mutated: "session.change_queue(totals, |_| drop((floor, &segments)));",
    },
    Mutant {
        name: "an append wakes no watch",
        file: "index.rs",
        code: "        stream.watches.wake();\n",
        mutated: "",
    },
    Mutant {
        name: "recovery loses the watches",
        file: "upkeep.rs",
        code: "                *recovered = watches;\n",
        mutated: "                let _ = (recovered, watches);\n",
    },
    Mutant {
        name: "a seal displaces too few ended streams",
        file: "engine.rs",
        code: "forgotten: ended.take(excess).collect(),",
        mutated: "forgotten: ended.take(excess.saturating_sub(1)).collect(),",
    },
    Mutant {
        name: "a checkpoint ends in a segment without a header",
        file: "engine.rs",
        code: "Some(header) if header.number > 1 => Location {",
        mutated: "Some(header) if header.number == 0 => Location {",
    },
    Mutant {
        name: "a damaged durable group is truncated",
        file: "recovery.rs",
        code: "if durable > self.commit {",
        mutated: "if durable > u64::MAX - 1 {",
    },
    Mutant {
        name: "a torn payload is accepted",
        file: "recovery.rs",
        code: "        if !damaged.is_empty() && self.durable_behind(header)? < header.commit {",
        mutated: "        if false && self.durable_behind(header)? < header.commit {",
    },
    Mutant {
        name: "a missing segment is not detected",
        file: "recovery.rs",
        code: "        if let Some((missing, _)) = missing {",
        mutated: "        if let Some((missing, _)) = missing.filter(|_| false) {",
    },
    Mutant {
        name: "a damaged payload is served",
        file: "read.rs",
        code: "part.matches(&slice).then_some(slice)",
        mutated: "Some(slice)",
    },
    Mutant {
        name: "the commit thread ignores the close of the store",
        file: "commit.rs",
        code: "} else if !queue.waiting.is_empty() || queue.closed {",
        mutated: "} else if !queue.waiting.is_empty() {",
    },
    Mutant {
        name: "a session of another epoch takes from a queue",
        file: "engine.rs",
        code: "    if session.epoch == epoch {\n        return Ok(());",
        mutated: "    if session.epoch > 0 || session.epoch == epoch {\n        return Ok(());",
    },
    Mutant {
        name: "with `always` a commit trusts an earlier look at the directory",
        file: "commit.rs",
        code: "Sync::Always => Duration::ZERO,",
        mutated: "Sync::Always => MAX_LOOK_AGE,",
    },
    Mutant {
        name: "a failed look at the directory is trusted",
        file: "data_dir.rs",
        code: "*looked = self.is_there().then_some(now);\n        looked.is_some()",
        mutated: "*looked = Some(now);\n        self.is_there()",
    },
    Mutant {
        name: "the replay ends with the first reused file",
        file: "recovery.rs",
        code: "            self.segment(&file, len)?;\n",
        mutated: "            self.segment(&file, len)?;\n            if u64::from(self.end.offset) < len {\n                return Ok(());\n            }\n",
    },
    Mutant {
        name: "old groups of a reused file are replayed",
        file: "recovery.rs",
        code: "header.filter(|header| header.commit == self.commit + 1)",
        mutated: "header",
    },
    Mutant {
        name: "a group is written before the name of its file is durable",
        file: "log.rs",
        code: "        sync_dir(dir)?; // the name must be durable before any group in the file\n",
        mutated: "",
    },
    Mutant {
        name: "a file is reused while a read has it open",
        file: "log.rs",
        code: "Arc::strong_count(spare) == 1",
        mutated: "Arc::strong_count(spare) > 0",
    },
];
