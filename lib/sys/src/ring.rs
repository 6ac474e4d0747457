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

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use abi::PAGE_BYTES;
    use abi::pcore::ring_slots;

    const PAGES: u64 = 1;
    const SLOTS: u64 = ring_slots(PAGES);

    /// The memory of a ring.
    #[repr(C, align(4096))]
    struct Page([u64; PAGE_BYTES as usize / 8]);

    fn ring() -> CallRing {
        let page = std::boxed::Box::leak(std::boxed::Box::new(Page([0; PAGE_BYTES as usize / 8])));
        // SAFETY: it is leaked, and reached by this only.
        unsafe { CallRing::new(core::ptr::from_mut(page) as u64, PAGES, Handle::NONE) }
    }

    /// Has the kernel core answer what was asked, up to a request.
    fn answer(ring: &CallRing, number: u64, status: u64) {
        let slot = ring.slot(number);
        assert_eq!(slot.number.load(Ordering::Relaxed), Call::RamStat.number());
        let asked = slot.arguments[0].load(Ordering::Relaxed);
        assert_eq!(asked, 100 + number, "each has its own slot");
        (0..).zip(&slot.results).for_each(|(index, result)| result.store(asked * 10 + index, Ordering::Relaxed));
        slot.status.store(status, Ordering::Relaxed);
        ring.header().completed.store(number + 1, Ordering::Release);
    }

    fn ask(ring: &mut CallRing, number: u64) -> Outcome<()> {
        ring.submit(Call::RamStat, [100 + number, 1, 2, 3, 4, 5])
    }

    #[test]
    fn replies_come_in_the_order_of_requests_as_often_as_the_ring_comes_round() {
        let mut ring = ring();
        assert_eq!(ring.take(), None);
        for number in 0..3 * SLOTS {
            ask(&mut ring, number).unwrap();
            assert_eq!(ring.header().submitted.load(Ordering::Relaxed), number + 1);
            assert_eq!(ring.take(), None);
            ring.header().completed.store(number + 2, Ordering::Relaxed);
            assert_eq!(ring.take(), None, "it cannot have done that");
            answer(&ring, number, 0);
            let first = (100 + number) * 10;
            assert_eq!(ring.take(), Some(Ok([first, first + 1, first + 2])));
        }
        ask(&mut ring, 3 * SLOTS).unwrap();
        answer(&ring, 3 * SLOTS, (Error::NoMemory as u64).wrapping_neg());
        assert_eq!(ring.take(), Some(Err(Error::NoMemory)));
        assert_eq!((ring.take(), ring.wakes()), (None, 0));
    }

    #[test]
    fn a_full_ring_takes_a_request_when_a_reply_was_taken() {
        let mut ring = ring();
        (0..SLOTS).for_each(|number| ask(&mut ring, number).unwrap());
        assert_eq!(ask(&mut ring, SLOTS), Err(Error::Busy));
        (0..2).for_each(|number| answer(&ring, number, 0));
        assert!(ring.take().is_some());
        assert_eq!((ask(&mut ring, SLOTS), ask(&mut ring, SLOTS + 1)), (Ok(()), Err(Error::Busy)));
        assert!(ring.take().is_some() && ring.take().is_none());
        (2..=SLOTS).for_each(|number| answer(&ring, number, 0));
        assert_eq!((2..9 + SLOTS).map_while(|_| ring.take()).count() as u64, SLOTS - 1);
    }

    #[test]
    fn a_kernel_core_that_says_it_did_more_than_was_asked_is_not_believed() {
        let mut ring = ring();
        ask(&mut ring, 0).unwrap();
        for completed in [2, SLOTS, u64::MAX] {
            ring.header().completed.store(completed, Ordering::Relaxed);
            assert_eq!(ring.take(), None, "{completed}");
        }
        ask(&mut ring, 1).unwrap();
        ask(&mut ring, 2).unwrap();
        (0..3).for_each(|number| answer(&ring, number, 0));
        assert_eq!((0..9).map_while(|_| ring.take()).count(), 3);
    }

    /// On a host the wake-up is refused, as all calls are; the request stands.
    #[test]
    fn a_kernel_core_that_sleeps_is_woken_by_each_request() {
        let mut ring = ring();
        ring.header().sleeping.store(1, Ordering::Relaxed);
        for number in 0..2 {
            assert_eq!((ask(&mut ring, number), ring.wakes()), (Err(Error::BadCall), number + 1));
        }
        ring.header().sleeping.store(0, Ordering::Relaxed);
        assert_eq!((ask(&mut ring, 2), ring.wakes()), (Ok(()), 2));
        assert_eq!(ring.header().submitted.load(Ordering::Relaxed), 3);
    }
}
