//! Recovery of a log whose last file has groups of an older segment behind its end.

use super::*;
use crate::Options;
use crate::simulation::assert_same;
use bytes::Bytes;
use rethread_proto::clock::Wall;
use rethread_store::{Principal, SessionId, SessionKey, SessionRecord};

const SEGMENT_BYTES: u64 = 4096;
/// Enough for about twenty segments.
const TOUCHES: u32 = 2000;

/// All groups have one length, so the first old group begins exactly where the log ends. Only its commit number shows
/// that it is old.
#[test]
fn old_groups_behind_the_end_are_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::default()
        .sync(Sync::Os)
        .segment_size(SEGMENT_BYTES)
        .clock(|| Wall::from_millis(1_000_000));
    let options = Arc::new(options);
    let dir = Arc::new(DataDir::lock(folder.path(), true).unwrap());
    let recovered = recovery::recover(&dir).unwrap();
    let checkpoint = recovered.checkpoint;
    let (engine, log) = Engine::open(Arc::clone(&options), Arc::clone(&dir), recovered);
    let core = Arc::new(Core::new(options, folder.path().to_owned(), engine, log));
    let mut upkeep = Upkeep::new(Arc::clone(&core), checkpoint);
    let key = SessionKey {
        principal: Principal::anonymous(),
        session: SessionId::from_random([1; 18]),
    };
    let record = SessionRecord::new(rethread_proto::Version::V2025_11_25, Bytes::from_static(b"{}"));
    core.commit_alone(&Op::Create(key.clone(), record)).unwrap();
    let has_old_groups = || {
        let (end, log) = core.read(|engine, log| (engine.end, Arc::clone(log))).unwrap();
        let len = log.file(end.segment).unwrap().len().unwrap();
        end.offset > 0 && u64::from(end.offset) < len
    };
    let mut found = false;
    for _ in 0..TOUCHES {
        core.commit_alone(&Op::Touch(key.clone())).unwrap();
        upkeep.round();
        found = has_old_groups();
        if found {
            break;
        }
    }
    assert!(found, "a file is reused");
    let killed = recovery::recover(&dir).unwrap();
    let compared = core.read(|engine, _| {
        assert_eq!((killed.commit, killed.end), (engine.commit, engine.end));
        assert_same(&killed.index, &engine.index);
    });
    compared.unwrap();
}
