//! Other cores come and go: core 0's monitor starts and halts them, at boot and while the system
//! runs.
//!
//! Invariants: a core is halted only when its monitor has made nothing that is still there, so
//! nobody elsewhere knows of anything on it; its link is gone from the table before, so nobody
//! makes anything while it is asked. One core changes at a time.

use alloc::format;
use alloc::rc::Rc;

use abi::Error;
use channel::Memory;
use contracts::monitor::{MonitorClient, MonitorError, MonitorEvent};
use monitor_core::Dead;
use runtime::TaskId;

use crate::link::{CORE_CHANGED, GREETED, Link};
use crate::service::{Service, passed, said};

/// How long a core may take to start or to halt.
const CHANGE_LIMIT_NS: u64 = 5_000_000_000;

/// A core that is up.
pub struct Far {
    /// Its monitor.
    pub client: MonitorClient,
    events: TaskId,
}

impl Service {
    /// Starts a core; its monitor is not up yet.
    pub fn start_core(&self, core: u32) -> Result<(Rc<Link>, Memory), Error> {
        let known = self.links.borrow().get(&core).cloned();
        let link = match known {
            Some(link) => link,
            None => {
                let link = Rc::new(Link::new(core)?);
                let (physical, pages) = link.place();
                self.registry.borrow().tell_borrowed(core, physical, pages, "link");
                self.links.borrow_mut().insert(core, link.clone());
                link
            }
        };
        link.start().map(|memory| (link, memory))
    }

    /// A core that was started is up: its events are ours to tell.
    pub fn link_up(self: &Rc<Self>, link: &Link, memory: Memory) -> Result<(), Error> {
        let client = link.client(memory)?;
        let events = runtime::spawn(self.clone().hear(link.core(), client.clone()));
        self.far.borrow_mut().insert(link.core(), Far { client, events });
        self.wake_waiting();
        Ok(())
    }

    async fn hear(self: Rc<Self>, core: u32, client: MonitorClient) {
        loop {
            match client.next_event().await {
                MonitorEvent::Died { name, generation, linux, death } => {
                    self.tell_death(&Dead { name, generation, linux, death });
                }
                MonitorEvent::Serving { domain } => self.tell(|listener| listener.serving(domain)),
                MonitorEvent::Wants { domain, request, contract, index } => {
                    self.tell(|listener| listener.wants(domain, request, contract.clone(), index));
                }
                MonitorEvent::Stalled { domain } => self.tell(|listener| listener.stalled(domain)),
                MonitorEvent::Lost => runtime::log!("core {core}: events were lost"),
                MonitorEvent::PeerRestarted => {}
                MonitorEvent::Closed => {
                    self.far.borrow_mut().remove(&core);
                    return runtime::log!("core {core} does not keep the contract, it is given up");
                }
            }
        }
    }

    /// All cores that start at boot did: from now on they may be changed.
    pub fn cores_are_up(&self) {
        self.changing.set(false);
        self.booted.set(true);
        self.wake_waiting();
    }

    /// Starts a core that was halted, or halts one on which there is nothing.
    pub async fn change_core(self: &Rc<Self>, core: u32, run: bool) -> Result<(), MonitorError> {
        if !self.is_first() || core == 0 || core >= self.cores() {
            return Err(MonitorError::NoCore);
        }
        if self.changing.replace(true) {
            return Err(MonitorError::Busy);
        }
        let is_up = self.far.borrow().contains_key(&core);
        let changed = match (run, is_up) {
            (true, false) => self.run_again(core).await,
            (false, true) => self.halt(core).await,
            _ => Ok(()),
        };
        self.changing.set(false);
        changed
    }

    async fn run_again(self: &Rc<Self>, core: u32) -> Result<(), MonitorError> {
        let started = self.start_core(core).map_err(|error| match error {
            Error::Busy => MonitorError::Busy,
            error => said(&format!("core {core} does not start: {}", error.name())),
        })?;
        let (link, memory) = started;
        until(GREETED, || link.is_up())
            .await
            .map_err(|()| said(&format!("core {core} does not come up; halt it and try again")))?;
        self.link_up(&link, memory).map_err(|error| said(&format!("core {core} has no link: {}", error.name())))
    }

    async fn halt(self: &Rc<Self>, core: u32) -> Result<(), MonitorError> {
        let Some(far) = self.far.borrow_mut().remove(&core) else { return Err(MonitorError::NoCore) };
        if let Err(error) = passed(far.client.leave(core).await) {
            self.far.borrow_mut().insert(core, far);
            return Err(error);
        }
        runtime::abort(far.events);
        let link = self.links.borrow().get(&core).cloned().ok_or(MonitorError::NoCore)?;
        link.halt().map_err(|error| said(&format!("core {core} does not halt: {}", error.name())))?;
        let halted = until(CORE_CHANGED, || link.is_halted()).await;
        halted.map_err(|()| said(&format!("core {core} does not halt in time")))?;
        // Not before: a monitor whose link is closed would end by itself.
        drop(far);
        link.forget();
        Ok(())
    }
}

/// Looks again at each notification of `badge` until it is so.
async fn until(badge: u64, is_so: impl Fn() -> bool) -> Result<(), ()> {
    let change = async {
        while !is_so() {
            runtime::notified(badge).await;
        }
    };
    runtime::timeout(CHANGE_LIMIT_NS, change).await.map_err(drop)
}
