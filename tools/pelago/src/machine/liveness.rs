//! Whether a guest still runs, for those who wait for its answers: a machine that is gone resets no
//! connection of a network of its own, so each wait would last to its limit.

use anyhow::{Result, bail, ensure};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Of one guest; of none it holds for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestLiveness {
    /// The emulator, a child that is not waited for before its guest goes.
    process: Option<u32>,
}

impl GuestLiveness {
    /// Of the child with that process id.
    pub fn of(process: u32) -> GuestLiveness {
        GuestLiveness { process: Some(process) }
    }

    /// An error if the guest has ended.
    pub fn check(&self) -> Result<()> {
        let Some(process) = self.process else { return Ok(()) };
        // proc(5): the state stands behind the name, which ends at the last bracket.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let runs = stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']));
        ensure!(runs, "the guest has ended");
        Ok(())
    }

    /// Does what waits for the guest; an error as soon as the guest has ended.
    pub fn wait<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (sender, result) = sync_channel(1);
        // Left alone if the guest ends: its own limit ends it.
        std::thread::spawn(move || sender.send(work()));
        loop {
            match result.recv_timeout(LOOK_EVERY) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => bail!("the client failed"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_waits_for_one_that_ended_hears_of_it() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let liveness = GuestLiveness::of(child.id());
        assert_eq!(liveness.wait(|| Ok(7)).unwrap(), 7);
        liveness.check().unwrap();
        child.kill().unwrap();
        let (_kept, never) = std::sync::mpsc::channel::<()>();
        let problem = liveness.wait(move || Ok(never.recv()?)).unwrap_err();
        assert!(problem.to_string().contains("ended"), "{problem}");
        child.wait().unwrap();
        assert!(liveness.check().is_err() && GuestLiveness::default().check().is_ok());
    }
}
