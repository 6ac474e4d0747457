//! What programs say at `/dev/log`, on the machine's log: of each program at most a line a second.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::cell::RefCell;

use runtime::LogLimit;

/// Programs with a limit of their own, by name; all others have one together.
const PROGRAMS_MAX: usize = 64;

/// See the module's head.
#[derive(Default)]
pub struct Log(RefCell<BTreeMap<String, LogLimit>>);

impl Log {
    /// A program of that name says so.
    pub fn tell(&self, program: &str, line: &str) {
        let mut limits = self.0.borrow_mut();
        let is_one_more = !limits.contains_key(program) && limits.len() >= PROGRAMS_MAX;
        let limit = limits.entry(if is_one_more { String::new() } else { program.into() }).or_default();
        limit.log(format!("log of {program}: {line}"));
    }

    /// The machine ends: writes what was held back.
    pub fn end(&self) {
        self.0.borrow().values().for_each(LogLimit::end);
    }
}
