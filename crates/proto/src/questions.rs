//! Questions to the client: asked on one connection, answered on another (D7).

use crate::jsonrpc::RequestId;
use std::collections::HashMap;

/// The open questions of one session. `W` wakes the caller that waits for the answer.
#[derive(Debug)]
pub struct Questions<W> {
    epoch: u64,
    asked: u64,
    open: HashMap<u64, W>,
    limit: usize,
}

/// The id of a question. On the wire it is `s<epoch>-<number>`: unique in the session, also after restarts, and never
/// compared with ids of the client (S2C-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    epoch: u64,
    number: u64,
}

impl Question {
    /// The id on the wire.
    pub fn id(self) -> RequestId {
        RequestId::from(format!("s{}-{}", self.epoch, self.number).as_str())
    }

    /// The epoch of the view that asked.
    pub fn epoch(self) -> u64 {
        self.epoch
    }

    /// The number in that view, from 1.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// Parses an id of the wire. `None` for an id that no question has.
    pub fn parse(id: &RequestId) -> Option<Self> {
        let text = std::str::from_utf8(id.as_json()).ok()?;
        let (epoch, number) = text.strip_prefix("\"s")?.strip_suffix('"')?.split_once('-')?;
        let question = Question {
            epoch: epoch.parse().ok()?,
            number: number.parse().ok()?,
        };
        (question.id() == *id).then_some(question)
    }
}

/// The session has reached its limit of open questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many open questions to the client")]
pub struct TooManyQuestions;

/// The result of matching an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerOutcome<W> {
    /// The caller that waits for the answer.
    Waiter(W),
    /// Settled before: accept and ignore the answer (S2C-04).
    Late,
    /// Never asked in this session: refuse the answer (S2C-04).
    NeverAsked,
}

impl<W> Questions<W> {
    /// The questions of a session in its epoch, at most `limit` open at a time.
    pub fn new(epoch: u64, limit: usize) -> Self {
        Questions {
            epoch,
            asked: 0,
            open: HashMap::new(),
            limit,
        }
    }

    /// Opens a question.
    pub fn ask(&mut self, waiter: W) -> Result<Question, TooManyQuestions> {
        if self.open.len() >= self.limit {
            return Err(TooManyQuestions);
        }
        self.asked += 1;
        self.open.insert(self.asked, waiter);
        Ok(Question {
            epoch: self.epoch,
            number: self.asked,
        })
    }

    /// Settles the question with `id`. Each question is settled at most once.
    pub fn settle(&mut self, id: &RequestId) -> AnswerOutcome<W> {
        let Some(question) = Question::parse(id) else {
            return AnswerOutcome::NeverAsked;
        };
        let current = question.epoch == self.epoch;
        let waiter = current.then(|| self.open.remove(&question.number)).flatten();
        if let Some(waiter) = waiter {
            return AnswerOutcome::Waiter(waiter);
        }
        let asked = if current {
            (1..=self.asked).contains(&question.number)
        } else {
            (1..self.epoch).contains(&question.epoch) && question.number > 0 // RST-04: asked before a restart
        };
        if asked {
            AnswerOutcome::Late
        } else {
            AnswerOutcome::NeverAsked
        }
    }

    /// Closes a question without an answer. False if it was settled already.
    pub fn abandon(&mut self, question: Question) -> bool {
        question.epoch == self.epoch && self.open.remove(&question.number).is_some()
    }

    /// Closes every question. Returns the waiters, which the caller notifies.
    pub fn abandon_all(&mut self) -> impl Iterator<Item = W> {
        std::mem::take(&mut self.open).into_values()
    }

    /// The number of open questions.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2c_01_ids_are_never_reused() {
        let mut questions = Questions::new(1, 8);
        let mut seen = std::collections::HashSet::new();
        for n in 0..100 {
            let question = questions.ask(n).unwrap();
            assert!(seen.insert(question.id()));
            assert_eq!(questions.settle(&question.id()), AnswerOutcome::Waiter(n));
        }
        let after_restart = Questions::new(2, 8).ask(0).unwrap();
        assert!(seen.insert(after_restart.id()));
    }

    #[test]
    fn s2c_04_late_answers_are_ignored_and_forged_ones_refused() {
        let mut questions = Questions::new(2, 8);
        let question = questions.ask("w").unwrap();
        assert_eq!(questions.settle(&question.id()), AnswerOutcome::Waiter("w"));
        assert_eq!(questions.settle(&question.id()), AnswerOutcome::Late);
        assert_eq!(
            questions.settle(&RequestId::from("s1-9")),
            AnswerOutcome::Late,
            "RST-04"
        );
        for made_up in [
            "s2-2", "s2-0", "s3-1", "s02-1", "s2-01", "s0-1", "x", "s-1", "s2-1 ", "2-1",
        ] {
            assert_eq!(
                questions.settle(&RequestId::from(made_up)),
                AnswerOutcome::NeverAsked,
                "{made_up}"
            );
        }
        assert_eq!(questions.settle(&RequestId::from(1)), AnswerOutcome::NeverAsked);
    }

    #[test]
    fn d13_open_questions_are_bounded() {
        let mut questions = Questions::new(1, 2);
        let first = questions.ask(()).unwrap();
        questions.ask(()).unwrap();
        assert_eq!(questions.ask(()), Err(TooManyQuestions));
        assert!(questions.abandon(first));
        assert!(!questions.abandon(first));
        assert!(questions.ask(()).is_ok());
        assert_eq!(questions.abandon_all().count(), 2);
        assert_eq!(questions.open(), 0);
    }
}
