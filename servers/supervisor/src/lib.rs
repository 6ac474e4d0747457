//! Policy: what to do when a component dies, and what is remembered of each. Pure: events and times in, decisions out.
//!
//! Invariants: a component is restarted under the next generation, at most [`RESTARTS_MAX`] times in [`WINDOW_NS`]; one that ended by itself
//! with status 0 is done. Deliberately unknown here: how components are made, messages.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::string::String;

use abi::DeathCause;
use contracts::spawn::{Death, DomainId};
use system::Restart;

/// Most restarts in a window.
pub const RESTARTS_MAX: usize = 10;
/// The window.
pub const WINDOW_NS: u64 = 10_000_000_000;
/// Status with which a stalled component is ended.
pub const STALLED: u64 = 124;

/// How a component stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started yet.
    Waiting,
    /// Started, not ready.
    Starting,
    /// Ready.
    Serving,
    /// Ended by itself, and that is right.
    Finished,
    /// Dead, not to come again.
    GivenUp,
}

/// What to do after a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start it again with this generation.
    Restart(u64),
    /// Nothing.
    Finished,
    /// It died too often.
    GiveUp,
    /// The system cannot go on without it.
    End,
}

/// A component, as the supervisor knows it.
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What the description says.
    pub restart: Restart,
    /// Where it runs.
    pub core: u32,
    /// Of the last start; 0 before the first.
    pub generation: u64,
    /// While it runs.
    pub domain: Option<DomainId>,
    /// How it stands.
    pub phase: Phase,
    /// When it was seen dead or stalled, until it serves again.
    pub down_ns: Option<u64>,
    /// How long the last recovery took.
    pub recovery_ns: u64,
    restarts: VecDeque<u64>,
}

impl Entry {
    /// Not started yet.
    pub fn new(name: &str, restart: Restart, core: u32) -> Entry {
        Entry {
            name: name.into(),
            restart,
            core,
            generation: 0,
            domain: None,
            phase: Phase::Waiting,
            down_ns: None,
            recovery_ns: 0,
            restarts: VecDeque::new(),
        }
    }

    /// It was started.
    pub fn started(&mut self, domain: DomainId, generation: u64) {
        (self.domain, self.generation) = (Some(domain), generation);
        // It may have said that it serves before the answer to the start came.
        if self.phase != Phase::Serving {
            self.phase = Phase::Starting;
        }
    }

    /// It serves; gives how long it was down, if it was.
    pub fn serves(&mut self, now_ns: u64) -> Option<u64> {
        self.phase = Phase::Serving;
        let down_ns = self.down_ns.take()?;
        self.recovery_ns = now_ns.saturating_sub(down_ns);
        Some(self.recovery_ns)
    }

    /// It does not look at its work.
    pub fn stalls(&mut self, now_ns: u64) {
        self.down_ns.get_or_insert(now_ns);
    }

    /// It died.
    pub fn died(&mut self, death: &Death, now_ns: u64) -> Decision {
        self.domain = None;
        let by_itself = DeathCause::decode(death.cause) == Some(DeathCause::Exit) && death.status == 0;
        if by_itself && self.restart == Restart::Always {
            (self.phase, self.down_ns) = (Phase::Finished, None);
            return Decision::Finished;
        }
        self.phase = Phase::GivenUp;
        if self.restart == Restart::Never {
            return Decision::End;
        }
        while self.restarts.front().is_some_and(|at_ns| now_ns - at_ns > WINDOW_NS) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= RESTARTS_MAX {
            return Decision::GiveUp;
        }
        self.restarts.push_back(now_ns);
        self.down_ns.get_or_insert(now_ns);
        self.phase = Phase::Starting;
        Decision::Restart(self.generation + 1)
    }
}

/// The cause of a death, in words.
pub fn cause(death: &Death) -> String {
    let Death { status, address, rip, .. } = death;
    match DeathCause::decode(death.cause) {
        Some(DeathCause::Killed) if *status == STALLED => "stalled".into(),
        Some(DeathCause::Killed) => "killed".into(),
        Some(DeathCause::Exit) => alloc::format!("exit {status}"),
        Some(DeathCause::Exception) => alloc::format!("exception {status} at {rip:#x}, address {address:#x}"),
        Some(DeathCause::BadCall) => alloc::format!("bad call at {rip:#x}"),
        Some(DeathCause::NoMemory) => "out of memory".into(),
        Some(DeathCause::Revoked) => "its memory was revoked".into(),
        Some(DeathCause::Alive) | None => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(cause: DeathCause, status: u64) -> Death {
        Death { domain: 1, cause: cause as u64, status, address: 0, rip: 0, cpu_ns: 0 }
    }

    #[test]
    fn a_death_is_followed_by_the_next_generation_and_measured() {
        let mut entry = Entry::new("ip", Restart::Always, 1);
        entry.started(7, 1);
        assert_eq!(entry.serves(5), None);
        entry.stalls(100);
        assert_eq!(entry.died(&death(DeathCause::Killed, STALLED), 150), Decision::Restart(2));
        entry.started(8, 2);
        assert_eq!(entry.serves(400), Some(300));
        assert_eq!(entry.recovery_ns, 300);
    }

    #[test]
    fn too_many_deaths_end_in_giving_up_but_not_slow_ones() {
        let mut entry = Entry::new("ip", Restart::Always, 0);
        for count in 0..RESTARTS_MAX as u64 {
            assert_eq!(entry.died(&death(DeathCause::Exception, 14), count), Decision::Restart(1));
        }
        assert_eq!(entry.died(&death(DeathCause::Exception, 14), 20), Decision::GiveUp);
        assert_eq!(entry.died(&death(DeathCause::Exception, 14), 20 + WINDOW_NS), Decision::Restart(1));
    }

    #[test]
    fn an_end_by_itself_is_no_crash_and_state_in_the_heap_is_not_restarted() {
        let mut page = Entry::new("webd", Restart::Always, 0);
        assert_eq!(page.died(&death(DeathCause::Exit, 0), 1), Decision::Finished);
        let mut fs = Entry::new("fs", Restart::Never, 0);
        assert_eq!(fs.died(&death(DeathCause::Exit, 0), 1), Decision::End);
    }
}
