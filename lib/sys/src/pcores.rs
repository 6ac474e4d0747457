//! Cores, and the ring by which a kernel core takes calls.

use abi::pcore::{Launch, Ring, RingSlot, ring_slots};
use abi::{Call, Error, Handle, ObjectType};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Outcome, call};

/// `PcoreAlloc`: a claim on a core.
pub fn pcore_alloc(pcore: Handle, ram: Handle, core: u64) -> Outcome<Handle> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::PcoreAlloc, [pcore.0, ram.0, core, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `PcoreRun`.
pub fn pcore_run(pcore: Handle, launch: &Launch) -> Outcome<()> {
    // SAFETY: the kernel reads `launch`; another core has memory of its own, and what it is shown
    // of ours is named by segments, whose mappings are unsafe to use.
    unsafe { call(Call::PcoreRun, [pcore.0, core::ptr::from_ref(launch) as u64, 0, 0, 0, 0]) }.map(drop)
}

/// `PcoreHalt`: does not return if it is the caller's own core.
pub fn pcore_halt(pcore: Handle) -> Outcome<()> {
    // SAFETY: nothing runs afterwards on a core that it halts.
    unsafe { call(Call::PcoreHalt, [pcore.0, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `PcoreWatch`.
pub fn pcore_watch(pcore: Handle, notification: Handle) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::PcoreWatch, [pcore.0, notification.0, 0, 0, 0, 0]) }.map(drop)
}

/// `PcoreAddDevice` with a ring of calls: its index.
pub fn pcore_add_ring(pcore: Handle, segment: Handle) -> Outcome<u64> {
    // SAFETY: the kernel writes into the segment as the protocol of rings has it, and only there.
    let results = unsafe { call(Call::PcoreAddDevice, [pcore.0, abi::pcore::polled::RING, segment.0, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `PcoreAddDevice` with a word of a device, and the wake slot that its changes wake: its index.
pub fn pcore_add_word(pcore: Handle, segment: Handle, offset: u64, core: u64, slot: u64) -> Outcome<u64> {
    let words = [pcore.0, abi::pcore::polled::WORD, segment.0, offset, core, slot];
    // SAFETY: the kernel only reads the word.
    let results = unsafe { call(Call::PcoreAddDevice, words) }?;
    Ok(results.words[0])
}

/// `PcoreStat`: APIC id, NUMA node, running.
pub fn pcore_stat(core: u64) -> Outcome<(u64, u64, bool)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::PcoreStat, [core, 0, 0, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1], results.words[2] != 0))
}

/// `PcoreCurrent`: this core, cores, cores running.
pub fn pcore_current() -> Outcome<(u64, u64, u64)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::PcoreCurrent, [0; 6]) }?;
    Ok((results.words[0], results.words[1], results.words[2]))
}

/// `PcoreUse`: nanoseconds that programs had the core, what it runs (`abi::pcore::runs`), id of the
/// domain that claimed it.
pub fn pcore_use(pcore: Handle, core: u64) -> Outcome<(u64, u64, u64)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::PcoreUse, [pcore.0, core, 0, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1], results.words[2]))
}

/// `LocalityGet`: distance from the first core to memory of the second's node, and their nodes.
pub fn locality_get(from: u64, to: u64) -> Outcome<(u64, u64, u64)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::LocalityGet, [from, to, 0, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1], results.words[2]))
}

/// `ObjectCount`.
pub fn object_count(object_type: ObjectType) -> Outcome<u64> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::ObjectCount, [object_type as u64, 0, 0, 0, 0, 0]) }?;
    Ok(results.words[0])
}

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

    /// Its header, for whoever wants to see more than the methods tell.
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
