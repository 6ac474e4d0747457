//! For whom the components of this core worked, as each of them says.

use abi::Handle;
use contracts::endpoint::Work;
use contracts::monitor::MonitorError;
use contracts::spawn::DomainId;

use crate::service::Service;

/// How long a component may take to say it: one that hangs is somebody else's business.
const WORK_LIMIT_NS: u64 = 100_000_000;

impl Service {
    /// Asks a component of this core, or answers for the monitor itself.
    pub async fn work_of(&self, domain: DomainId) -> Result<Work, MonitorError> {
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
}
