//! What the log says of calls that are not answered in full: each once, and which was refused last
//! when the first program ends badly, since that may be why.
//!
//! Invariant: plain data; a forked child has its parent's.

use alloc::format;
use alloc::string::String;

use contracts::process::Ended;

use crate::calls;
use crate::signals::number::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};

const SIGABRT: u8 = 6;
const SIGSYS: u8 = 31;
/// Signals that a program earns by what it does itself.
const OWN_FAULT: [u8; 7] = [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS];

/// See the module's head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    logged: [u64; 8],
    last: Option<u64>,
}

impl Refusals {
    /// Nothing was refused.
    pub const fn new() -> Refusals {
        Refusals { logged: [0; 8], last: None }
    }

    /// Is this call to be logged? Not if it was already.
    pub fn is_first(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64 % 8) as usize, 1 << (number % 64));
        let is_first = self.logged[word] & bit == 0;
        self.logged[word] |= bit;
        is_first
    }

    /// This call was refused.
    pub fn refuse(&mut self, number: u64) {
        self.last = Some(number);
    }

    /// Was nothing refused?
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Another program runs: nothing was refused to it yet.
    pub fn begin(&mut self) {
        self.last = None;
    }

    /// What is to be said of the end of the first program, if it ends badly and was refused
    /// something.
    pub fn at_end(&self, program: &str, how: Ended) -> Option<String> {
        let number = self.last?;
        let end = match how {
            Ended::Exited(0) => return None,
            Ended::Exited(status) => format!("status {status}"),
            Ended::Signalled(signal) if !OWN_FAULT.contains(&signal) => return None,
            Ended::Signalled(signal) => format!("signal {signal}"),
        };
        let call = calls::name(number).unwrap_or("(unknown)");
        Some(format!("{program}: ended with {end}; last refused: Linux call {number} {call} (docs/linux-coverage.md)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_logged_once() {
        let mut refusals = Refusals::new();
        let calls = [101, 29, 101, 0, 29, 64, 1, 101 - 64, 29 + 64];
        let first: Vec<_> = calls.into_iter().filter(|number| refusals.is_first(*number)).collect();
        assert_eq!(first, [101, 29, 0, 64, 1, 101 - 64, 29 + 64]);
        // Any number may come from a program.
        refusals.is_first(u64::MAX);
    }

    #[test]
    fn a_bad_end_names_what_was_refused_last() {
        let mut refusals = Refusals::new();
        assert!(refusals.is_empty());
        assert_eq!(refusals.at_end("/bin/tool", Ended::Exited(1)), None);
        refusals.refuse(29);
        assert!(!refusals.is_empty());
        refusals.refuse(101);
        let told = |how| refusals.at_end("/bin/tool", how);
        let words = "/bin/tool: ended with status 1; last refused: Linux call 101 ptrace (docs/linux-coverage.md)";
        assert_eq!(told(Ended::Exited(1)).as_deref(), Some(words));
        assert!(told(Ended::Signalled(SIGABRT)).is_some_and(|line| line.contains("ended with signal 6")));
        // It did what it was to do, or somebody else ended it.
        assert_eq!((told(Ended::Exited(0)), told(Ended::Signalled(15))), (None, None));
        refusals.refuse(u64::MAX);
        assert!(refusals.at_end("t", Ended::Exited(1)).is_some_and(|line| line.contains("(unknown)")));
        refusals.refuse(9);
        assert!(refusals.at_end("t", Ended::Exited(1)).is_some_and(|line| line.contains("call 9 mmap")));
        refusals.begin();
        assert_eq!(refusals.at_end("t", Ended::Exited(1)), None);
    }
}
