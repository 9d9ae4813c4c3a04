//! Damaged files. The store refuses to open, or every successful read is correct. It never serves a stream with a hole
//! and never restores an ended session.

use crate::disk::copy_folder;
use crate::ledger::{Guarantee, History, Ledger, session_key};
use crate::load::{self, Load};
use crate::power_cut::Trial;
use crate::support::{Folder, Rng, chain, child, env_var, is_child, open, options, runtime};
use rethread_store::{EventStore, Ordinal, ReadLimit, Seq, SessionStore, StreamKey};
use rethread_store_embedded::Sync;
use rethread_testkit::store_suite::{batch, record};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CASES: usize = 30;
/// A longer run of the child counts as a hang.
const CHILD_TIMEOUT: Duration = Duration::from_secs(40);

/// Damage to files. Paths are relative to the data directory.
#[derive(Clone, Debug)]
enum Damage {
    Truncated { file: PathBuf, to: u64 },
    Flipped { file: PathBuf, at: u64, bit: u8 },
    Zeroed { file: PathBuf, at: u64 },
    Removed { file: PathBuf },
    RemovedAll { all: Vec<PathBuf> },
    Swapped { one: PathBuf, other: PathBuf },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Truncated { file, to } => write!(f, "{} cut off at {to}", file.display()),
            Damage::Flipped { file, at, bit } => write!(f, "{} with bit {bit} of byte {at} flipped", file.display()),
            Damage::Zeroed { file, at } => write!(f, "{} with zeroes from {at}", file.display()),
            Damage::Removed { file } => write!(f, "{} removed", file.display()),
            Damage::RemovedAll { all } => write!(f, "all {} files of a kind removed", all.len()),
            Damage::Swapped { one, other } => write!(f, "{} and {} swapped", one.display(), other.display()),
        }
    }
}

impl Damage {
    /// Chooses random damage to one of `files`, or to all of one kind.
    fn choose(data: &Path, files: &[PathBuf], rng: &mut Rng) -> Self {
        let kinds = [
            "segment",
            "segment",
            "segment",
            "segment",
            "checkpoint",
            "checkpoint",
            "other",
        ];
        let kind = *rng.pick(&kinds);
        let of_kind: Vec<&PathBuf> = files.iter().filter(|file| kind_of(file) == kind).collect();
        let file = if of_kind.is_empty() {
            rng.pick(files).clone()
        } else {
            (*rng.pick(&of_kind)).clone()
        };
        let segments: Vec<&PathBuf> = files.iter().filter(|file| kind_of(file) == "segment").collect();
        let used = used(&data.join(&file)).max(1);
        match rng.below(11) {
            0 | 1 => Damage::Truncated {
                to: rng.below(used),
                file,
            },
            // A torn write leaves a short file end.
            2 => Damage::Truncated {
                to: used.saturating_sub(1 + rng.below(5000)),
                file,
            },
            3..=5 => Damage::Flipped {
                at: rng.below(used),
                bit: rng.below(8) as u8,
                file,
            },
            6 | 7 => Damage::Zeroed {
                at: rng.below(used) & !4095,
                file,
            },
            8 if segments.len() > 1 => Damage::Swapped {
                one: segments[0].clone(),
                other: (*rng.pick(&segments[1..])).clone(),
            },
            9 => Damage::RemovedAll {
                all: of_kind.into_iter().cloned().collect(),
            },
            _ => Damage::Removed { file },
        }
    }

    fn files(&self) -> Vec<&PathBuf> {
        match self {
            Damage::Truncated { file, .. }
            | Damage::Flipped { file, .. }
            | Damage::Zeroed { file, .. }
            | Damage::Removed { file } => vec![file],
            Damage::RemovedAll { all } => all.iter().collect(),
            Damage::Swapped { one, other } => vec![one, other],
        }
    }

    fn name(&self) -> String {
        let kind = match self {
            Damage::Truncated { .. } => "cut off",
            Damage::Flipped { .. } => "bit flipped",
            Damage::Zeroed { .. } => "4 KiB zeroed",
            Damage::Removed { .. } => "removed",
            Damage::RemovedAll { .. } => "all removed",
            Damage::Swapped { .. } => "swapped",
        };
        format!("{} {kind}", kind_of(self.files()[0]))
    }

    fn apply(&self, data: &Path) {
        let open = |file: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).open(data.join(file)).unwrap()
        };
        match self {
            Damage::Truncated { file, to } => open(file).set_len(*to).unwrap(),
            Damage::Flipped { file, at, bit } => {
                let (file, mut byte) = (open(file), [0]);
                if file.read_at(&mut byte, *at).unwrap() == 1 {
                    file.write_all_at(&[byte[0] ^ 1 << bit], *at).unwrap();
                }
            }
            Damage::Zeroed { file, at } => {
                let file = open(file);
                let length = file.metadata().unwrap().len().saturating_sub(*at).min(4096);
                file.write_all_at(&vec![0; length as usize], *at).unwrap();
            }
            Damage::Removed { file } => fs::remove_file(data.join(file)).unwrap(),
            Damage::RemovedAll { all } => all.iter().for_each(|file| fs::remove_file(data.join(file)).unwrap()),
            Damage::Swapped { one, other } => {
                let (one, other, aside) = (data.join(one), data.join(other), data.join("aside"));
                fs::rename(&one, &aside).unwrap();
                fs::rename(&other, &one).unwrap();
                fs::rename(&aside, &other).unwrap();
            }
        }
    }
}

fn kind_of(file: &Path) -> &'static str {
    match file.extension().and_then(|end| end.to_str()) {
        Some("log") => "segment",
        Some("checkpoint") => "checkpoint",
        _ => "other",
    }
}

/// Length of a file without trailing zeroes.
fn used(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last as u64 + 1)
}

fn files(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root.join(below)) else {
        return;
    };
    for entry in entries.flatten() {
        let path = below.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(root, &path, found);
        } else {
            found.push(path);
        }
    }
    found.sort();
}

#[test]
fn damaged_files_never_cause_a_wrong_read() {
    let mut rng = Rng::seeded("torn");
    let home = Folder::new("torn");
    let base = home.path().join("base");
    let mut trial = Trial::new("os", &Rng::new(rng.next()));
    let ledgers = [home.path().join("ledger-1"), home.path().join("ledger-2")];
    let mut all = Vec::new();
    trial.run_to_exit(&base, home.path(), 2000);
    fs::rename(home.path().join("ledger"), &ledgers[0]).unwrap();
    // Kill the writer after it has several segments and two checkpoints.
    trial.set_sync("always");
    trial.run_until(&base, home.path(), || {
        all.clear();
        files(&base, Path::new(""), &mut all);
        let count = |kind| all.iter().filter(|file| kind_of(file) == kind).count();
        let written = fs::metadata(home.path().join("ledger")).map_or(0, |ledger| ledger.len());
        count("segment") > 3 && count("checkpoint") > 1 && written > 20_000
    });
    fs::rename(home.path().join("ledger"), &ledgers[1]).unwrap();
    all.clear();
    files(&base, Path::new(""), &mut all);
    let count = |kind| all.iter().filter(|file| kind_of(file) == kind).count();
    eprintln!(
        "{} segments, {} checkpoints, {} other files, {} MiB used; {} batches",
        count("segment"),
        count("checkpoint"),
        count("other"),
        all.iter().map(|file| used(&base.join(file))).sum::<u64>() >> 20,
        trial.history.acknowledged(),
    );

    let mut outcomes: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in 0..CASES {
        let damage = Damage::choose(&base, &all, &mut rng);
        let data = home.path().join("case");
        copy_folder(&base, &data).unwrap();
        damage.apply(&data);
        let (outcome, text) = read_in_child(&data, home.path(), &ledgers);
        eprintln!("{case}: {damage}: {outcome}: {text:.300}");
        *outcomes.entry(damage.name()).or_default().entry(outcome).or_default() += 1;
        if !matches!(outcome, "does not open" | "partly refused" | "opens") {
            wrong.push(format!("case {case}, {damage}: {outcome}: {text}"));
        }
        fs::remove_dir_all(&data).unwrap();
    }
    eprintln!("| damage | outcome | cases |\n|---|---|---|");
    for (damage, outcomes) in &outcomes {
        for (outcome, count) in outcomes {
            eprintln!("| {damage} | {outcome} | {count} |");
        }
    }
    // Control: the undamaged source of the copies opens.
    let whole = home.path().join("whole");
    copy_folder(&base, &whole).unwrap();
    let (outcome, text) = read_in_child(&whole, home.path(), &ledgers);
    assert_eq!(outcome, "opens", "{text}");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Power fails during a commit, and any of its pages may be lost. Recovery discards the unacknowledged commit and
/// keeps all earlier ones.
#[test]
fn recovery_discards_a_torn_commit() {
    let mut rng = Rng::seeded("torn commit");
    let home = Folder::new("torn-commit");
    let (live, after) = (home.path().join("live"), home.path().join("after"));
    let load = Arc::new(Load {
        store: open(&live, Sync::Always),
        ledger: Ledger::open(&home.path().join("ledger")),
        fresh: 1.into(),
        epoch: 2,
        batches: 60.into(),
    });
    let runtime = runtime();
    let session = 1_000_000; // has large payloads: only a checksum detects the loss of an inner page
    let key = StreamKey {
        session: session_key(session),
        ordinal: Ordinal(77),
    };
    runtime.block_on(load.run(4, Vec::new(), &mut rng)).unwrap();
    load.ledger.create(session, false);
    runtime
        .block_on(load.store.create(&key.session, record(), false))
        .unwrap();
    load.ledger.create(session, true);
    // Wait until background work stops appending, so that the torn commit is the last one.
    let mut start = (PathBuf::new(), 0);
    while start != end_of_log(&live) {
        start = end_of_log(&live);
        runtime.block_on(load.store.sweep()).unwrap();
        std::thread::sleep(Duration::from_millis(1200));
    }
    load.ledger.send(session, 77, 1, 10, false);
    let batch = load::batch(session, 77, 2, 1, 10, false);
    runtime.block_on(load.store.append(&key, batch)).unwrap();
    copy_folder(&live, &after).unwrap();
    drop(load);
    let (segment, end) = end_of_log(&after);
    let start = if segment == start.0 { start.1 } else { 0 };
    assert!(end > start + 2 * 4096, "the commit spans several pages: {start}..{end}");
    for case in 0..12 {
        let data = home.path().join("data");
        copy_folder(&after, &data).unwrap();
        let file = OpenOptions::new().write(true).open(data.join(&segment)).unwrap();
        let pages: Vec<u64> = (start & !4095..end).step_by(4096).collect();
        let share = *rng.pick(&[10, 50]);
        let lost: Vec<u64> = match case % 3 {
            0 => pages.into_iter().filter(|_| rng.chance(share)).collect(),
            _ => vec![*rng.pick(&pages)], // a single lost page is the hardest to detect
        };
        for page in &lost {
            let (from, to) = (start.max(*page), end.min(page + 4096));
            file.write_all_at(&vec![0; (to - from) as usize], from).unwrap();
        }
        let store = match options(Sync::Always).open(&data) {
            Ok(store) => store,
            Err(error) => panic!("case {case}, pages lost of {start}..{end}: {lost:?}: {}", chain(&error)),
        };
        let mut history = History::of(&home.path().join("ledger"));
        let checked = runtime.block_on(history.check(&store, Guarantee::All));
        checked.unwrap_or_else(|error| panic!("case {case}, pages lost of {start}..{end}: {lost:?}: {error}"));
        drop(store);
        fs::remove_dir_all(&data).unwrap();
    }
}

/// The last non-empty segment and its length.
fn end_of_log(data: &Path) -> (PathBuf, u64) {
    let mut all = Vec::new();
    files(data, Path::new(""), &mut all);
    let segments = all.into_iter().filter(|file| kind_of(file) == "segment");
    let mut lengths = segments.map(|file| (used(&data.join(&file)), file));
    let (length, file) = lengths.rfind(|(length, _)| *length > 0).unwrap();
    (file, length)
}

/// Opens and reads a store in a child process, because a panic or an abort must be reported as the outcome.
fn read_in_child(data: &Path, home: &Path, ledgers: &[PathBuf]) -> (&'static str, String) {
    let (result, stderr) = (home.join("result"), home.join("stderr"));
    let _ = fs::remove_file(&result);
    let child = child("torn::reader", &stderr);
    // A damaged length must not exhaust the memory of the machine.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v 8000000; exec \"$0\" \"$@\""])
        .arg(child.get_program())
        .args(child.get_args())
        .envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("DATA", data)
        .env("RESULT", &result)
        .env("LEDGERS", std::env::join_paths(ledgers).unwrap())
        .stdout(std::process::Stdio::null())
        .stderr(File::create(&stderr).unwrap());
    let mut child = limited.spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > CHILD_TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            return ("HANGS", fs::read_to_string(result).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let stderr_text = fs::read_to_string(&stderr).unwrap_or_default();
    let text = fs::read_to_string(result).unwrap_or_default();
    if !status.success() {
        return ("PANICS OR ABORTS", format!("{status}; {text}; {stderr_text}"));
    }
    let outcome = ["does not open", "partly refused", "opens"];
    match outcome.into_iter().find(|outcome| text.starts_with(outcome)) {
        Some(outcome) => (outcome, text),
        None => ("WRONG", text),
    }
}

/// The child process: opens the store, reads everything, tries to append, and reports the outcome.
#[test]
#[ignore = "runs as a child process of the test in this file"]
fn reader() {
    if !is_child("torn::reader") {
        return;
    }
    let result = PathBuf::from(env_var("RESULT"));
    let report = |text: String| fs::write(&result, text).unwrap();
    report("while opening".into());
    let mut history = History::default();
    for ledger in std::env::split_paths(&env_var("LEDGERS")) {
        history.add_ledger(&ledger);
    }
    let data = PathBuf::from(env_var("DATA"));
    let store = match options(Sync::Os).open(&data) {
        Ok(store) => store,
        Err(error) => {
            let text = chain(&error);
            assert!(
                text.contains(&*data.to_string_lossy()),
                "the error does not name the directory: {text}"
            );
            return report(format!("does not open: {text}"));
        }
    };
    report("while reading".into());
    let runtime = runtime();
    let checked = runtime.block_on(history.check_damaged(&store));
    let (found, refused) = match checked {
        Ok(found) => found,
        Err(error) => return report(format!("WRONG: {error}")),
    };
    if found.sessions == 0 && refused.is_empty() {
        // The loss of a single file must not reset the store to its empty state.
        return report("WRONG: the store is empty and reports no error".into());
    }
    report("while writing".into());
    let session = session_key(u64::MAX);
    let key = StreamKey {
        session: session.clone(),
        ordinal: Ordinal(1),
    };
    let written = runtime.block_on(async {
        store.create(&session, record(), false).await?;
        store.append(&key, batch(1..3)).await
    });
    if let Err(error) = &written {
        assert!(error.is_outage(), "{error:?}");
    }
    report("while closing".into());
    drop(store);
    // An append that was acknowledged after the damage must survive a restart.
    report("while opening again".into());
    let again = match options(Sync::Os).open(&data) {
        Ok(store) => runtime.block_on(store.read_after(&key, Seq(0), ReadLimit::default())),
        Err(error) => return report(format!("does not open: the second time: {}", chain(&error))),
    };
    let is_retained = match &again {
        Ok(page) => page.events.len() == 2,
        Err(error) => error.is_outage(),
    };
    if written.is_ok() && !is_retained {
        return report(format!("WRONG: an append after the damage was lost: {again:?}"));
    }
    report(format!(
        "{}: {found:?}, refused: {refused:?}, written: {}",
        if refused.is_empty() { "opens" } else { "partly refused" },
        written.is_ok(),
    ));
}
