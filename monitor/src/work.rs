//! What cores run, and for whom the components of this one worked, as each of them says.

use alloc::rc::Rc;

use abi::Handle;
use abi::pcore::runs;
use contracts::endpoint::Work;
use contracts::monitor::{CoreRuns, CoreUse, MonitorError};
use contracts::spawn::DomainId;
use monitor_core::Machine;

use crate::service::{Service, kernel};

/// How long a component may take to say it: one that hangs is somebody else's business.
const WORK_LIMIT_NS: u64 = 100_000_000;

impl<M: Machine + 'static> Service<M> {
    /// For whom that domain of that core worked.
    pub async fn work(self: &Rc<Self>, core: u32, domain: DomainId) -> Result<Work, MonitorError> {
        if core == self.core {
            return self.work_here(domain).await;
        }
        self.remote_core(core, |monitor| monitor.work(core, domain)).await
    }

    /// Asks a component of this core, or answers for the monitor itself.
    async fn work_here(&self, domain: DomainId) -> Result<Work, MonitorError> {
        if sys::cap_stat(Handle::SELF_DOMAIN).is_ok_and(|(_, own, _)| own == domain) {
            runtime::take_in_all().await;
            return Ok(runtime::work());
        }
        let endpoint = self.endpoint(domain)?;
        match runtime::timeout(WORK_LIMIT_NS, endpoint.work()).await {
            Ok(Ok(work)) => Ok(work),
            Ok(Err(_)) | Err(_) => Err(MonitorError::Failed),
        }
    }

    /// What that core does, as the first core's kernel knows it; only the first monitor can ask.
    pub fn core_use(&self, core: u32) -> Result<CoreUse, MonitorError> {
        if !self.is_first() || core >= self.cores() {
            return Err(MonitorError::NoCore);
        }
        let use_of_it = sys::pcore_use(Handle::PCORE, core.into());
        let (programs_ns, what, claimant) = kernel(use_of_it)?;
        Ok(CoreUse { runs: core_runs(what), claimed_by: self.domain_name(claimant), programs_ns })
    }
}

/// What the kernel calls so.
fn core_runs(what: u64) -> CoreRuns {
    match what {
        runs::MONITOR => CoreRuns::Monitor,
        runs::PROGRAM => CoreRuns::Program,
        runs::KERNEL_CORE => CoreRuns::KernelCore,
        _ => CoreRuns::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_runs_what_the_kernel_says_or_nothing() {
        let all = [runs::NOTHING, runs::MONITOR, runs::PROGRAM, runs::KERNEL_CORE, 4].map(core_runs);
        let [nothing, monitor] = [CoreRuns::Nothing, CoreRuns::Monitor];
        assert_eq!(all, [nothing, monitor, CoreRuns::Program, CoreRuns::KernelCore, nothing]);
    }
}
