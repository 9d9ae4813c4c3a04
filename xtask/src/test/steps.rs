//! The steps of a run: their results and times.

use super::tally::Tally;
use crate::run;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The completed steps. Two threads may run steps at the same time.
pub(super) struct Steps {
    start: Instant,
    ended: Mutex<Vec<Step>>,
    not_run: Mutex<Vec<String>>,
}

/// A completed step.
struct Step {
    name: String,
    /// Time from the start of the run.
    start: Duration,
    time: Duration,
    tally: Tally,
    failed: bool,
}

impl Steps {
    pub(super) fn begin() -> Self {
        Steps {
            start: Instant::now(),
            ended: Mutex::default(),
            not_run: Mutex::default(),
        }
    }

    /// Runs a command as a step.
    pub(super) fn command(&self, name: &str, command: &mut Command) -> bool {
        self.step(name, |tally| run::watch(command, |line| tally.read(line)))
    }

    /// Runs a command as a step that is concurrent with steps of another thread.
    pub(super) fn command_beside(&self, name: &str, command: &mut Command) -> bool {
        self.step(name, |tally| run::watch_beside(name, command, |line| tally.read(line)))
    }

    /// Runs a step and returns whether it succeeded.
    pub(super) fn step(&self, name: &str, work: impl FnOnce(&mut Tally) -> Result<(), String>) -> bool {
        println!("--- {name}");
        let (start, mut tally) = (self.start.elapsed(), Tally::default());
        let outcome = work(&mut tally);
        let time = self.start.elapsed() - start;
        let seconds = time.as_secs_f64();
        match &outcome {
            Ok(()) => println!("--- {name}: ok after {seconds:.1} s"),
            Err(message) => {
                println!("--- {name}: FAILED after {seconds:.1} s: {message}");
                // A failed step without failed tests counts as one failure, so that the last line shows it.
                tally.failed = tally.failed.max(1);
            }
        }
        lock(&self.ended).push(Step {
            name: name.to_owned(),
            start,
            time,
            tally,
            failed: outcome.is_err() || tally.failed > 0,
        });
        outcome.is_ok()
    }

    /// Records a skipped part of the tests and the reason.
    pub(super) fn leave_out(&self, what: String) {
        println!("--- not run: {what}");
        lock(&self.not_run).push(what);
    }

    /// Prints the times, the failures and the line `N passed, N failed`.
    pub(super) fn finish(self) -> Result<(), String> {
        let mut steps = self.ended.into_inner().expect("no step panics");
        steps.sort_by_key(|step| step.start);
        print!("{}", table(&steps, self.start.elapsed()));
        for what in self.not_run.into_inner().expect("no step panics") {
            println!("--- not run: {what}");
        }
        let failed: Vec<&str> = steps
            .iter()
            .filter(|step| step.failed)
            .map(|step| &*step.name)
            .collect();
        if !failed.is_empty() {
            println!("--- failed: {}", failed.join(", "));
        }
        let passed: usize = steps.iter().map(|step| step.tally.passed).sum();
        let failures: usize = steps.iter().map(|step| step.tally.failed).sum();
        println!("{passed} passed, {failures} failed");
        match failed.is_empty() {
            true => Ok(()),
            false => Err(String::new()),
        }
    }
}

/// The times of all steps. Concurrent steps overlap, so their sum exceeds the total.
fn table(steps: &[Step], total: Duration) -> String {
    let width = steps.iter().map(|step| step.name.len()).max().unwrap_or(0).max(5);
    let mut text = format!("--- time\n{:<width$}  start   time  tests\n", "step");
    for step in steps {
        let tests = match step.tally.passed + step.tally.failed {
            0 => String::new(),
            tests => tests.to_string(),
        };
        let row = format!(
            "{:<width$}  {}  {}  {tests:>5}",
            step.name,
            clock(step.start),
            clock(step.time)
        );
        text += &format!("{}{}\n", row.trim_end(), if step.failed { "  FAILED" } else { "" });
    }
    text + &format!("{:<width$}         {}\n", "total", clock(total))
}

/// Minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:>2}:{:02}", seconds / 60, seconds % 60)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no step panics while it holds the lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_step_without_tests_counts_once() {
        let steps = Steps::begin();
        assert!(steps.step("good", |tally| {
            tally.passed = 3;
            Ok(())
        }));
        assert!(!steps.step("bad", |_| Err("reason".to_owned())));
        assert!(!steps.step("worse", |tally| {
            tally.failed = 2;
            Err("reason".to_owned())
        }));
        let tallies: Vec<_> = lock(&steps.ended)
            .iter()
            .map(|step| (step.tally.passed, step.tally.failed))
            .collect();
        assert_eq!(tallies, [(3, 0), (0, 1), (0, 2)]);
        assert!(steps.finish().is_err());
    }

    #[test]
    fn steps_of_two_threads_are_all_counted() {
        let steps = Steps::begin();
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let steps = &steps;
                scope.spawn(move || {
                    steps.step(name, |tally| {
                        tally.passed = 1;
                        Ok(())
                    })
                });
            }
        });
        assert_eq!(lock(&steps.ended).len(), 2);
        assert!(steps.finish().is_ok());
    }

    #[test]
    fn table_has_start_time_and_tests_of_each_step() {
        let seconds = Duration::from_secs;
        let step = |name: &str, start, time, passed, failed| Step {
            name: name.to_owned(),
            start: seconds(start),
            time: seconds(time),
            tally: Tally { passed, failed },
            failed: failed > 0,
        };
        let steps = [step("format", 0, 2, 0, 0), step("outside: crash", 62, 601, 11, 1)];
        let expected = "\
--- time
step            start   time  tests
format           0:00   0:02
outside: crash   1:02  10:01     12  FAILED
total                  11:03
";
        assert_eq!(table(&steps, seconds(663)), expected);
    }
}
