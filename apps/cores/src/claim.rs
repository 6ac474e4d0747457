//! A claim on a core, with its watch.

use abi::pcore::{Launch, LaunchSegment};
use abi::{Handle, Rights};
use alloc::format;
use alloc::string::String;
use contracts::monitor::CoreUse;

use crate::{Bench, Outcome, ensure, refused};

/// Our badge bit for cores that start or halt.
const CHANGED: u64 = 1 << 61;
/// How long a core may take for either.
pub const LIMIT_NS: u64 = 5_000_000_000;

/// Between two looks at what another core writes.
pub const PAUSE_NS: u64 = 100_000;

/// Before another look: lets others run, and fails with `why` when it is too late.
pub async fn again(end_ns: u64, why: &str) -> Outcome {
    runtime::sleep(PAUSE_NS).await;
    ensure(runtime::now_ns() < end_ns, || String::from(why))
}

/// A core of ours.
pub struct Claim {
    /// The capability.
    pub pcore: Handle,
    /// Which one.
    pub core: u64,
}

impl Claim {
    /// Has the system give the last core away, and takes it.
    pub async fn of_last(bench: &Bench) -> Result<Claim, String> {
        let core = bench.last_core();
        change(bench, core, false).await?;
        let core = core.into();
        let pcore = sys::pcore_alloc(bench.cores, Handle::SELF_RAM, core).map_err(refused("PcoreAlloc"))?;
        let claim = Claim { pcore, core };
        let doorbell = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, CHANGED).map_err(refused("CapMint"))?;
        sys::pcore_watch(pcore, doorbell).map_err(refused("PcoreWatch"))?;
        sys::cap_drop(doorbell).map_err(refused("CapDrop"))?;
        Ok(claim)
    }

    /// Waits until it runs or has halted.
    pub async fn until(&self, running: bool) -> Outcome {
        until_core(self.core, running).await
    }

    /// Halts it and waits for that.
    pub async fn halt(&self) -> Outcome {
        sys::pcore_halt(self.pcore).map_err(refused("PcoreHalt"))?;
        self.until(false).await
    }

    /// Halts the core and releases it to the system, which has its monitor run there again.
    pub async fn release(self, bench: &Bench) -> Outcome {
        self.halt().await?;
        let core = self.core as u32;
        drop(self);
        change(bench, core, true).await
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The core halts with it, also after a test that failed.
        let _ = sys::cap_drop(self.pcore);
    }
}

/// Waits until a core that we watch runs or has halted.
pub async fn until_core(core: u64, running: bool) -> Outcome {
    let stands = || sys::pcore_stat(core).is_ok_and(|(_, _, found)| found == running);
    let change = async {
        while !stands() {
            runtime::notified(CHANGED).await;
        }
    };
    let word = if running { "run" } else { "halt" };
    runtime::timeout(LIMIT_NS, change).await.map_err(|_| format!("core {core} does not {word} in time"))
}

/// Has monitor 0 run or halt a core.
pub async fn change(bench: &Bench, core: u32, run: bool) -> Outcome {
    let asked = runtime::timeout(LIMIT_NS, bench.monitor.change_core(core, run)).await;
    match asked {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("change_core({core}, {run}): {error:?}")),
        Err(_) => Err(format!("change_core({core}, {run}): no answer")),
    }
}

/// What monitor 0 tells of a core.
pub async fn used(bench: &Bench, core: u64) -> Result<CoreUse, String> {
    bench.monitor.core_use(core as u32).await.map_err(|error| format!("core_use({core}): {error:?}"))
}

/// A launch with these segments: (segment, address, protection).
pub fn launch(entry: u64, stack: u64, argument: u64, segments: &[(Handle, u64, u64)]) -> Launch {
    let mut launch = Launch { entry, stack, argument, count: segments.len() as u64, ..Launch::default() };
    for (to, &(handle, address, protection)) in launch.segments.iter_mut().zip(segments) {
        *to = LaunchSegment { handle: handle.0, address, protection };
    }
    launch
}
