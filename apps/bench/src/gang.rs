//! A gang of two cores: how far apart its members begin to run.
//!
//! Each notes when it first ran in a window; what it was told are three numbers, and from then on
//! nobody says a word. In an emulator the row shows how evenly its host wakes two threads; of the
//! kernel it shows that nothing but the alarm stands between the clock and the member.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::{Error, Handle};
use runtime::{Companion, Start};

use crate::echo::EchoClient;
use crate::sample::SAMPLES;

/// Where the second member lives.
const FAR: &str = "echo-far";
const PERIOD_US: u64 = 10_000;
const SLICE_US: u64 = 5000;
const PRIORITY: u64 = 1;
/// In a round.
const WINDOWS: u64 = SAMPLES as u64;
/// A host that has other things to do lets cores miss windows whole.
const ROUNDS: usize = 20;
/// From agreeing on the windows to the first.
const MARGIN_NS: u64 = 100_000_000;

/// First readings of the clock in a window, by the window's number; 0: it did not run.
static STARTS_NS: [AtomicU64; WINDOWS as usize] = [const { AtomicU64::new(0) }; WINDOWS as usize];

extern "C" fn note(first_ns: u64) -> ! {
    loop {
        let now_ns = runtime::now_ns();
        let window = now_ns.saturating_sub(first_ns) / (PERIOD_US * 1000);
        if now_ns >= first_ns
            && let Some(start) = STARTS_NS.get(window as usize)
            && start.load(Ordering::Relaxed) == 0
        {
            start.store(now_ns, Ordering::Release);
        }
    }
}

/// Runs a member on this core, the first window being at `first_us`; when it began, per window.
pub async fn take_part(pcore: Handle, first_us: u64) -> Result<Vec<u64>, Error> {
    STARTS_NS.iter().for_each(|start| start.store(0, Ordering::Relaxed));
    // SAFETY: it reads the clock and writes to the table.
    let member = unsafe { Companion::start(note, first_us * 1000, Some((PRIORITY, SLICE_US))) }?;
    let time = member.time().ok_or(Error::BadHandle)?;
    sys::schedule_gang(pcore, time, PERIOD_US, SLICE_US, first_us % PERIOD_US)?;
    let end_ns = (first_us + WINDOWS * PERIOD_US) * 1000;
    runtime::sleep(end_ns.saturating_sub(runtime::now_ns())).await;
    drop(member);
    Ok(STARTS_NS.iter().map(|start| start.load(Ordering::Acquire)).collect())
}

/// The row, on machines where the second member has a core of its own.
pub async fn skew(start: &Start) -> Result<(), Error> {
    if start.cores() == 1 {
        return Ok(());
    }
    let pcore = start.capability("cores").ok_or(Error::NoRights)?;
    let far = start.client::<EchoClient>(FAR).map_err(|_| Error::NotFound)?;
    let mut skews_ns = Vec::new();
    for _ in 0..ROUNDS {
        let first_us = (runtime::now_ns() + MARGIN_NS) / 1000;
        let theirs = far.gang(first_us);
        let ours = take_part(pcore, first_us).await?;
        let theirs = theirs.await.map_err(|_| Error::PeerDead)?;
        let both = ours.iter().zip(&theirs).filter(|(ours, theirs)| **ours != 0 && **theirs != 0);
        skews_ns.extend(both.map(|(ours, theirs)| ours.abs_diff(*theirs)));
        if skews_ns.len() >= SAMPLES {
            skews_ns.sort_unstable();
            runtime::log!("gang-skew {} ns", skews_ns[skews_ns.len() / 2]);
            return Ok(());
        }
    }
    runtime::log!("gang-skew failed the host let both run in {} windows only", skews_ns.len());
    Ok(())
}
