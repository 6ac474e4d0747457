//! The ring by which a kernel core takes calls.

use crate::Outcome;
use abi::pcore::{Ring, RingSlot, ring_slots};
use abi::{Call, Error, Handle};
use core::sync::atomic::{AtomicU64, Ordering};

/// The user's end of a ring. One program uses it, from one thread at a time.
pub struct CallRing {
    address: u64,
    slots: u64,
    /// Notified when the kernel core sleeps.
    doorbell: Handle,
    submitted: u64,
    taken: u64,
    wakes: u64,
}

impl CallRing {
    /// A ring in `pages` pages at `address`, not yet polled by anyone; `doorbell` wakes the kernel
    /// core (`WakeSlotImport`, any slot).
    ///
    /// # Safety
    /// The pages are mapped for reading and writing as long as the ring is used, and reached in no
    /// other way.
    pub unsafe fn new(address: u64, pages: u64, doorbell: Handle) -> CallRing {
        let ring = CallRing { address, slots: ring_slots(pages), doorbell, submitted: 0, taken: 0, wakes: 0 };
        ring.header().submitted.store(0, Ordering::Relaxed);
        ring.header().completed.store(0, Ordering::Release);
        ring
    }

    /// Gives the ring's header, for a caller that needs more than the methods give.
    pub fn header(&self) -> &Ring {
        // SAFETY: by the contract of `new`; only atomics touch it.
        unsafe { &*(self.address as *const Ring) }
    }

    fn slot(&self, number: u64) -> &RingSlot {
        // SAFETY: as for the header, and within the pages.
        unsafe { &*(self.address as *const RingSlot).add(1 + (number % self.slots) as usize) }
    }

    /// Writes a request; wakes the kernel core if it sleeps. `Busy`: the ring is full, take replies
    /// first.
    pub fn submit(&mut self, call: Call, arguments: [u64; 6]) -> Outcome<()> {
        if self.submitted - self.taken == self.slots {
            return Err(Error::Busy);
        }
        let slot = self.slot(self.submitted);
        slot.number.store(call.number(), Ordering::Relaxed);
        slot.arguments
            .iter()
            .zip(arguments)
            .for_each(|(to, word): (&AtomicU64, u64)| to.store(word, Ordering::Relaxed));
        self.submitted += 1;
        // Before the look at `sleeping`: the kernel core says that it sleeps first and looks at
        // `submitted` second.
        self.header().submitted.store(self.submitted, Ordering::SeqCst);
        if self.header().sleeping.load(Ordering::SeqCst) != 0 {
            self.wakes += 1;
            return crate::notify(self.doorbell);
        }
        Ok(())
    }

    /// How often the kernel core had to be woken: the only calls that this makes.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// The next reply, in the order of requests; `None` if it is not there yet, or nothing was
    /// asked.
    pub fn take(&mut self) -> Option<Outcome<[u64; 3]>> {
        // What the kernel core wrote is a claim: it cannot have done more than was asked.
        let done = self.header().completed.load(Ordering::Acquire);
        if self.taken == self.submitted || done.wrapping_sub(self.taken).wrapping_sub(1) >= self.submitted - self.taken
        {
            return None;
        }
        let slot = self.slot(self.taken);
        let status = slot.status.load(Ordering::Relaxed);
        let results = core::array::from_fn(|index| slot.results[index].load(Ordering::Relaxed));
        self.taken += 1;
        Some(match status {
            0 => Ok(results),
            code => Err(Error::from_code(code.wrapping_neg()).unwrap_or(Error::BadCall)),
        })
    }
}
