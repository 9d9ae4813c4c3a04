//! RES-03, RES-08: compares random operations on a stream's log with a model, which is a plain list. A cursor sees the
//! retained events after it, in order and once, and learns of a gap.
#![no_main]

mod model;

use bytes::Bytes;
use libfuzzer_sys::{arbitrary, fuzz_target};
use model::Model;
use rethread_proto::event_id::{Seq, StreamKind};
use rethread_proto::stream::{Batch, Event, Log, Retain, Retention, StreamInfo};

#[derive(arbitrary::Arbitrary, Debug)]
enum Operation {
    Append(Draft),
    AppendAgain,
    Evict { events: u8, bytes: u16 },
    Bury,
    Read { cursor: u8, limit: u8, bytes: u8 },
}

#[derive(arbitrary::Arbitrary, Debug)]
struct Draft {
    writer: Writer,
    /// Offset of the first number from the expected one.
    off: Option<i8>,
    events: Vec<(u8, Kind)>,
    released: Vec<u8>,
    seals: bool,
}

#[derive(arbitrary::Arbitrary, Debug)]
enum Writer {
    Same,
    Earlier,
    Later,
}

#[derive(arbitrary::Arbitrary, Clone, Copy, Debug)]
enum Kind {
    Plain,
    Question,
    Answer,
}

fuzz_target!(|operations: Vec<Operation>| {
    let info = StreamInfo::new(StreamKind::Call, vec![7.into()], "n");
    let mut log = Log::new(info, 1);
    let mut model = Model::default();
    let mut latest = None;
    for operation in operations {
        match operation {
            Operation::Append(draft) => {
                let batch = draft.batch(&model);
                assert_eq!(log.append(batch.clone()), model.append(&batch));
                latest = Some(batch);
            }
            Operation::AppendAgain => {
                let Some(batch) = latest.clone() else { continue };
                assert_eq!(log.append(batch.clone()), model.append(&batch));
            }
            Operation::Evict { events, bytes } => {
                let limits = Retention::default().with_events(events.into()).with_bytes(bytes.into());
                assert_eq!(log.evict(&limits), model.evict(&limits));
            }
            Operation::Bury => {
                assert_eq!(log.bury(), model.bury());
                assert_eq!((log.len(), log.bytes()), (0, 0));
            }
            Operation::Read { cursor, limit, bytes } => {
                model.check_page(&log, Seq(cursor.into()), limit.into(), bytes.into());
            }
        }
        model.check(&log);
    }
    for cursor in 0..=model.last.map_or(0, |last| last.0.min(40)) {
        model.check_suffix(&log, Seq(cursor));
    }
});

impl Draft {
    fn batch(&self, model: &Model) -> Batch {
        let first = model.next().0.saturating_add_signed(self.off.unwrap_or(0).into());
        let event = |((size, kind), seq): (&(u8, Kind), u64)| {
            let retain = match kind {
                Kind::Plain => Retain::None,
                Kind::Question => Retain::Question,
                Kind::Answer => Retain::Answer,
            };
            Event::new(Seq(seq), Bytes::from(vec![b'x'; usize::from(*size)])).with_retain(retain)
        };
        let epoch = match self.writer {
            Writer::Same => model.epoch,
            Writer::Earlier => model.epoch - 1,
            Writer::Later => model.epoch + 1,
        };
        let events = self.events.iter().take(12).zip(first..).map(event).collect();
        let released = self.released.iter().map(|seq| Seq(u64::from(*seq))).collect();
        let mut batch = Batch::new(epoch, events).with_released(released);
        batch.seals = self.seals;
        batch
    }
}
