//! The `lookup` contract: this core's name cache, and the name server behind it.

use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;

use channel::{CallError, Peer};
use contracts::lookup::{CacheCounters, LookupError, LookupServer};
use contracts::names::{Named, NamesClient, NamesError, NamesEvent};
use monitor_core::NameCache;

/// How long the name server may take: longer than its restart.
const ANSWER_LIMIT_NS: u64 = 1_000_000_000;

/// When one that is being told is asked again.
const AGAIN_NS: u64 = 2_000_000;

/// See the module's head.
pub struct Names {
    core: u32,
    cache: RefCell<NameCache>,
    /// Wired with the first on this core who looks up.
    server: RefCell<Option<NamesClient>>,
}

impl Names {
    /// Knows nothing yet.
    pub fn new(core: u32) -> Names {
        Names { core, cache: RefCell::default(), server: RefCell::default() }
    }

    /// Asks that name server from now on, and hears of changes.
    pub async fn follow(self: Rc<Self>, server: NamesClient) {
        self.server.replace(Some(server.clone()));
        loop {
            match server.next_event().await {
                NamesEvent::Changed { contract } => self.cache.borrow_mut().changed(&contract),
                NamesEvent::Lost | NamesEvent::PeerRestarted => self.cache.borrow_mut().changed(""),
                NamesEvent::Closed => break,
            }
        }
        self.cache.borrow_mut().changed("");
        self.server.take();
    }

    async fn ask(&self, contract: &str, index: u32) -> Result<Option<Named>, LookupError> {
        let server = self.server.borrow().clone().ok_or(LookupError::Away)?;
        match runtime::timeout(ANSWER_LIMIT_NS, find(&server, contract, self.core, index)).await {
            Ok(Ok(named)) => Ok(Some(named)),
            Ok(Err(CallError::Server(NamesError::NotFound))) => Ok(None),
            _ => Err(LookupError::Away),
        }
    }
}

/// Asks a name server again while it is being told.
async fn find(server: &NamesClient, contract: &str, core: u32, index: u32) -> Result<Named, CallError<NamesError>> {
    loop {
        match server.find(contract.into(), core, index).await {
            Err(CallError::Server(NamesError::NotYet)) => runtime::sleep(AGAIN_NS).await,
            answer => return answer,
        }
    }
}

impl LookupServer for Names {
    async fn find(&self, _: &Peer, contract: String, index: u32) -> Result<Named, LookupError> {
        let known = self.cache.borrow_mut().find(&contract, index);
        let answer = match known {
            Some(answer) => answer,
            None => {
                let epoch = self.cache.borrow().epoch();
                let answer = self.ask(&contract, index).await?;
                self.cache.borrow_mut().learn(contract, index, answer.clone(), epoch);
                answer
            }
        };
        answer.ok_or(LookupError::NotFound)
    }

    async fn counters(&self, _: &Peer) -> Result<CacheCounters, LookupError> {
        Ok(self.cache.borrow().counters())
    }
}

#[cfg(test)]
mod tests;
