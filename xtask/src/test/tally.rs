//! Counts tests from the output of `cargo test`.

/// Numbers of passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Tally {
    /// Adds the numbers of a `test result:` line. Ignores other lines.
    pub(crate) fn read(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        for count in counts.split(['.', ';']) {
            match count.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse::<usize>().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse::<usize>().unwrap_or(0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 12 tests",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.05s",
            "ok 30 passed; 4 failed",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 15, failed: 2 });
    }
}
