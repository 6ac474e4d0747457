//! Ends a machine that somebody ends from outside: by a signal, or by a key.
//!
//! One without a disk is switched off. One with a disk is told to end, so that it can put away what
//! it keeps, and switched off if it has not ended some seconds later, or if it is to be ended once
//! more.

use crate::machine::guest::{Guest, Input};
use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The guest's own limit is 5 s (`contracts/src/storage.rs`); then it ends.
const LIMIT: Duration = Duration::from_secs(6);

/// See the module's head.
pub struct Stopper {
    /// The emulator's, which names no other process when that has gone.
    process: OwnedFd,
    /// Where a machine with a disk is told.
    input: Option<Input>,
    is_begun: AtomicBool,
    limit: Duration,
}

impl Stopper {
    /// Of a machine that runs.
    pub fn of(guest: &Guest, has_disk: bool) -> Result<Arc<Stopper>> {
        Stopper::within(LIMIT, guest, has_disk).map(Arc::new)
    }

    fn within(limit: Duration, guest: &Guest, has_disk: bool) -> Result<Stopper> {
        let id = Pid::from_raw(guest.process_id() as i32).context("the emulator has no process id")?;
        let process = pidfd_open(id, PidfdFlags::empty()).context("cannot open the emulator's process")?;
        let input = has_disk.then(|| guest.input());
        Ok(Stopper { process, input, is_begun: AtomicBool::new(false), limit })
    }

    /// Begins to end it. Does not wait until it has ended.
    pub fn stop(self: &Arc<Self>) {
        let is_first = !self.is_begun.swap(true, Ordering::Relaxed);
        if !is_first || !self.input.as_ref().is_some_and(|input| input.control("poweroff")) {
            self.switch_off();
            return;
        }
        let own = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(own.limit);
            if own.switch_off() {
                eprintln!(
                    "pelago: the machine did not end, and is switched off; what was written last may not be kept"
                );
            }
        });
    }

    /// Ends the emulator; false if it has ended.
    fn switch_off(&self) -> bool {
        pidfd_send_signal(&self.process, Signal::KILL).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::guest::Event;
    use std::process::Command;

    /// A program that stands for the emulator.
    fn guest(script: &str) -> Guest {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Guest::start_command(command, "sh", "dash").unwrap()
    }

    /// What it says until it ends.
    fn said(guest: &mut Guest) -> Vec<Event> {
        std::iter::from_fn(|| guest.next(Duration::from_secs(60)).unwrap()).collect()
    }

    #[test]
    fn a_machine_with_a_disk_is_told_to_end() {
        let mut told = guest(r#"read line; echo "$line""#);
        // However late a busy host has it answer.
        Arc::new(Stopper::within(Duration::from_secs(60), &told, true).unwrap()).stop();
        assert_eq!(said(&mut told), [Event::Reply("poweroff".into())]);
        // One without is not told anything.
        let mut switched_off = guest(r#"read line; echo "$line""#);
        Stopper::of(&switched_off, false).unwrap().stop();
        assert_eq!(said(&mut switched_off), []);
    }

    #[test]
    fn one_that_does_not_end_is_switched_off() {
        const DEAF: &str = r#"read line; echo "$line"; exec sleep 600"#;
        let mut late = guest(DEAF);
        Arc::new(Stopper::within(Duration::from_millis(1), &late, true).unwrap()).stop();
        said(&mut late);
        // The second time nobody waits.
        let mut twice = guest(DEAF);
        let stopper = Arc::new(Stopper::within(Duration::from_secs(60), &twice, true).unwrap());
        stopper.stop();
        assert_eq!(twice.next(Duration::from_secs(60)).unwrap(), Some(Event::Reply("poweroff".into())));
        stopper.stop();
        assert_eq!(said(&mut twice), []);
    }
}
