//! Log lines about something that may happen very often.
//!
//! Invariants: two lines are at least [`SECOND_NS`] apart; the last one is told within that time;
//! how many were left out stands behind the next that is told.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;

use crate::{log_line, now_ns, sleep_until, spawn};

/// From line to line, at least.
const SECOND_NS: u64 = 1_000_000_000;

/// Writes at most one line a second to the log.
#[derive(Clone, Default)]
pub struct LogLimit(Rc<RefCell<Pace>>);

impl LogLimit {
    /// Writes a line, now or within a second; unless another comes meanwhile, which is written
    /// instead with a count of those left out.
    pub fn log(&self, line: String) {
        let step = self.0.borrow_mut().offer(now_ns(), line);
        match step {
            Step::Tell(line) => log_line(format_args!("{line}")),
            Step::HoldUntil(due_ns) => {
                let pace = self.0.clone();
                spawn(async move {
                    sleep_until(due_ns).await;
                    let line = pace.borrow_mut().due(now_ns());
                    line.into_iter().for_each(|line| log_line(format_args!("{line}")));
                });
            }
            Step::Held => {}
        }
    }

    /// Writes what is held back at once: nobody may come to write it later.
    pub fn end(&self) {
        let line = self.0.borrow_mut().due(now_ns());
        line.into_iter().for_each(|line| log_line(format_args!("{line}")));
    }
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is written now.
    Tell(String),
    /// It, or what comes instead of it, is to be asked for then.
    HoldUntil(u64),
    /// It is held for the one who waits already.
    Held,
}

#[derive(Default)]
struct Pace {
    /// The next line may be written then.
    next_ns: u64,
    held: Option<String>,
    left_out: u32,
}

impl Pace {
    fn offer(&mut self, now_ns: u64, line: String) -> Step {
        if self.held.is_some() {
            self.held = Some(line);
            self.left_out += 1;
            return Step::Held;
        }
        if now_ns < self.next_ns {
            self.held = Some(line);
            return Step::HoldUntil(self.next_ns);
        }
        Step::Tell(self.tell(now_ns, line))
    }

    fn due(&mut self, now_ns: u64) -> Option<String> {
        let line = self.held.take()?;
        Some(self.tell(now_ns, line))
    }

    fn tell(&mut self, now_ns: u64, line: String) -> String {
        self.next_ns = now_ns.saturating_add(SECOND_NS);
        match core::mem::take(&mut self.left_out) {
            0 => line,
            count => format!("{line} (and {count} more in this second)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// What is written, and when, of lines that say by number when they came.
    fn written(times_ns: &[u64]) -> Vec<(u64, String)> {
        let (mut pace, mut due_ns, mut written) = (Pace::default(), None, Vec::new());
        for (number, now_ns) in times_ns.iter().enumerate() {
            let rang = due_ns.take_if(|due_ns| *due_ns <= *now_ns);
            written.extend(rang.and_then(|due_ns| Some((due_ns, pace.due(due_ns)?))));
            match pace.offer(*now_ns, number.to_string()) {
                Step::Tell(line) => written.push((*now_ns, line)),
                Step::HoldUntil(then_ns) => assert_eq!(due_ns.replace(then_ns), None),
                Step::Held => assert!(due_ns.is_some()),
            }
        }
        written.extend(due_ns.and_then(|due_ns| Some((due_ns, pace.due(due_ns)?))));
        written
    }

    #[test]
    fn the_first_line_comes_at_once_and_the_last_at_the_seconds_end_with_a_count() {
        let ms = |times: &[u64]| written(&times.iter().map(|ms| ms * 1_000_000).collect::<Vec<_>>());
        let told = ms(&[5, 10, 20, 30, 2000]);
        let expected = [(5, "0"), (1005, "3 (and 2 more in this second)"), (2005, "4")];
        assert_eq!(told, expected.map(|(ms, line)| (ms * 1_000_000, line.to_string())));
        assert_eq!(ms(&[0, 1000, 2000]).len(), 3);
    }

    /// With a clock that runs and a task that waits.
    #[test]
    fn a_held_line_is_written_a_second_after_the_last() {
        crate::testing::run(async {
            let limit = LogLimit::default();
            (0..3).for_each(|number| limit.log(number.to_string()));
            assert_eq!(limit.0.borrow().held.as_deref(), Some("2"));
            crate::sleep(SECOND_NS + 1_000).await;
            assert_eq!((limit.0.borrow().held.as_deref(), limit.0.borrow().left_out), (None, 0));
        });
    }

    #[test]
    fn what_is_held_can_be_written_at_once_and_is_not_written_again() {
        let ((), lines) = crate::testing::logged(async {
            let limit = LogLimit::default();
            (0..3).for_each(|number| limit.log(number.to_string()));
            limit.end();
            crate::log!("later");
            crate::sleep(2 * SECOND_NS).await;
            limit.end();
        });
        assert_eq!(lines, ["0", "2 (and 1 more in this second)", "later"]);
    }

    #[test]
    fn a_second_after_a_line_the_next_is_written_at_once() {
        let mut pace = Pace::default();
        let mut offered = |now_ns| pace.offer(now_ns, String::new());
        assert_eq!((offered(5), offered(5 + SECOND_NS)), (Step::Tell(String::new()), Step::Tell(String::new())));
        assert_eq!(offered(4 + 2 * SECOND_NS), Step::HoldUntil(5 + 2 * SECOND_NS));
    }

    proptest! {
        #[test]
        fn every_line_is_told_or_counted_and_the_last_is_told_in_time(
            pauses in prop::collection::vec(prop_oneof![0..50_000_000u64, 0..2 * SECOND_NS], 1..100)
        ) {
            let times: Vec<u64> = pauses.iter().scan(0, |now_ns, pause_ns| { *now_ns += pause_ns; Some(*now_ns) }).collect();
            let written = written(&times);
            prop_assert!(written.windows(2).all(|two| two[1].0 - two[0].0 >= SECOND_NS));
            let counts = written.iter().map(|(_, line)| {
                let count = line.split_once(" (and ").and_then(|(_, rest)| rest.split(' ').next());
                1 + count.map_or(0, |count| count.parse::<usize>().unwrap())
            });
            prop_assert_eq!(counts.sum::<usize>(), times.len());
            let (told_ns, last) = written.last().unwrap();
            prop_assert!(last.split(' ').next() == Some(&(times.len() - 1).to_string()));
            prop_assert!(told_ns - times.last().unwrap() <= SECOND_NS);
        }
    }
}
