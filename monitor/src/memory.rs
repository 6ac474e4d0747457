//! Moving pages from one core's account to another's. What is decided is in `monitor_core::Moves`.

use alloc::rc::Rc;
use core::cell::Cell;

use abi::Handle;
use contracts::monitor::MonitorError;
use monitor_core::{Answer, Machine};

use crate::service::{Service, kernel};

impl<M: Machine + 'static> Service<M> {
    /// Moves pages, to the end, whatever becomes of the client meanwhile.
    pub async fn move_pages(self: &Rc<Self>, from: u32, to: u32, pages: u64) -> Result<(), MonitorError> {
        let outcome = Rc::new(Cell::new(None));
        let (service, told) = (self.clone(), outcome.clone());
        runtime::spawn(async move {
            told.set(Some(service.carve_and_offer(from, to, pages).await));
            service.moved.changed();
        });
        self.moved.until(|| outcome.take()).await
    }

    async fn carve_and_offer(self: &Rc<Self>, from: u32, to: u32, pages: u64) -> Result<(), MonitorError> {
        let physical = self.carve(from, pages).await?;
        self.moves.borrow_mut().carved(physical, pages, from, to);
        if self.offer(physical).await == Some(to) { Ok(()) } else { Err(MonitorError::NoMemory) }
    }

    /// Offers pages to the two cores, each once; which has them.
    async fn offer(self: &Rc<Self>, physical: u64) -> Option<u32> {
        for _ in 0..2 {
            let next = self.moves.borrow().next(physical);
            let (core, pages) = next?;
            if self.offer_to(core, physical, pages).await {
                return Some(core);
            }
        }
        runtime::log!("the pages at {physical:#x} are with no core");
        None
    }

    async fn offer_to(self: &Rc<Self>, core: u32, physical: u64, pages: u64) -> bool {
        let answer = match self.add(core, physical, pages).await {
            Ok(()) => Answer::Added,
            Err(MonitorError::Failed) => Answer::Known,
            Err(MonitorError::NoCore | MonitorError::Away) => Answer::Unknown,
            Err(_) => Answer::Full,
        };
        self.moves.borrow_mut().answered(physical, core, answer)
    }

    /// A core that was lost runs again: pages that it may have got before are seen to.
    pub async fn offer_again(self: &Rc<Self>, core: u32) {
        let again = self.moves.borrow().is_back(core);
        for (physical, pages) in again {
            if !self.offer_to(core, physical, pages).await {
                self.offer(physical).await;
            }
        }
    }

    /// Takes pages out of a core's account.
    pub async fn carve(self: &Rc<Self>, core: u32, pages: u64) -> Result<u64, MonitorError> {
        if core == self.core {
            return kernel(sys::ram_carve(Handle::ROOT_RAM, pages));
        }
        self.remote_core(core, |monitor| monitor.carve(core, pages)).await
    }

    /// Puts pages into a core's account.
    pub async fn add(self: &Rc<Self>, core: u32, physical: u64, pages: u64) -> Result<(), MonitorError> {
        if core == self.core {
            return kernel(sys::ram_add(Handle::ROOT_RAM, physical, pages));
        }
        self.remote_core(core, |monitor| monitor.add(core, physical, pages)).await
    }
}
