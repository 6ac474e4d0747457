//! A kernel core: it runs no program, polls its devices and does calls for programs of other cores
//! (Corey section 4.4).
//!
//! Invariants: the contents of a ring are untrusted. Only calls with the flag `Ring` are done, none
//! of which waits, follows a pointer or is about a context; they are done for the kernel core's
//! domain, whose one context never runs and only represents it. An invalid ring is polled no more,
//! which harms its user alone. One poll of a ring does at most [`BATCH`] requests, so that every
//! device has its turn.
//!
//! A core whose devices are all rings sleeps when they were idle for as long as a wake-up costs,
//! and says so in each ring; one that polls a device's word does not sleep: nothing would wake it
//! (decision 45).

use crate::calls;
use crate::hardware;
use crate::mailbox;
use crate::memory::{PhysAddr, phys_to_virt};
use crate::objects::pcore::Polled;
use crate::objects::{Context, Ptr};
use crate::scheduler::Decision;
use crate::state::Kernel;
use abi::Error;
use abi::pcore::{DEVICES_MAX, Ring, RingSlot, polled, ring_slots};
use core::sync::atomic::{AtomicU16, Ordering};

/// Requests done in one poll of a ring.
const BATCH: u64 = 16;
/// How long it polls idle devices before it sleeps: about the cost of a wake-up (CAVEATS.md, waking
/// a sleeping core).
const SPIN_TIMEOUT_NS: u64 = 50_000;

/// A kernel core's devices.
pub struct Polling {
    caller: Ptr<Context>,
    devices: [Option<Device>; DEVICES_MAX],
}

struct Device {
    polled: Polled,
    polls: u64,
    found: u64,
    /// Of a ring, how many replies; of a word, what it was.
    seen: u64,
    stopped: bool,
}

impl Device {
    /// Begins to poll it; a ring's counts begin anew.
    #[inline(never)]
    fn begin(polled: Polled) -> Device {
        let seen = match polled {
            Polled::Ring { base, .. } => {
                ring(base).completed.store(0, Ordering::Relaxed);
                ring(base).stopped.store(0, Ordering::Release);
                0
            }
            Polled::Word { at, .. } => u64::from(word(at).load(Ordering::Acquire)),
        };
        Device { polled, polls: 0, found: 0, seen, stopped: false }
    }
}

fn ring(base: PhysAddr) -> &'static Ring {
    // SAFETY: memory of a segment that core 0 keeps until this core has halted, on a page boundary;
    // only atomics touch it.
    unsafe { &*phys_to_virt(base).cast::<Ring>() }
}

fn slot(base: PhysAddr, pages: u64, number: u64) -> &'static RingSlot {
    let index = number % ring_slots(pages);
    // SAFETY: as for `ring`, and within its pages: the header has the size of a slot.
    unsafe { &*phys_to_virt(base).cast::<RingSlot>().add(1 + index as usize) }
}

fn word(at: PhysAddr) -> &'static AtomicU16 {
    // SAFETY: as for `ring`; the offset was even.
    unsafe { &*phys_to_virt(at).cast::<AtomicU16>() }
}

impl Polling {
    /// Polls `devices` for the domain of `caller`.
    #[inline(never)]
    pub fn new(caller: Ptr<Context>, devices: [Option<Polled>; DEVICES_MAX]) -> Polling {
        Polling { caller, devices: devices.map(|polled| polled.map(Device::begin)) }
    }

    /// Kind, polls and what was found, of a device.
    pub fn stat(&self, index: u64) -> Option<[u64; 3]> {
        let device = self.devices.get(usize::try_from(index).ok()?)?.as_ref()?;
        let kind = match device.polled {
            Polled::Ring { .. } => polled::RING,
            Polled::Word { .. } => polled::WORD,
        };
        Some([kind, device.polls, device.found])
    }

    fn all(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().flatten()
    }

    fn may_sleep(&self) -> bool {
        self.all().all(|device| matches!(device.polled, Polled::Ring { .. }))
    }

    /// Tells users whether they have to wake us; gives whether one of them wrote before it could
    /// know.
    fn say_sleeping(&self, sleeping: bool) -> bool {
        let rings = || {
            self.all().filter(|device| !device.stopped).filter_map(|device| match device.polled {
                Polled::Ring { base, .. } => Some((ring(base), device.seen)),
                Polled::Word { .. } => None,
            })
        };
        rings().for_each(|(ring, _)| ring.sleeping.store(sleeping.into(), Ordering::SeqCst));
        // After the store: a user writes its request first and reads `sleeping` second, so one of
        // the two sees the other's.
        rings().any(|(ring, seen)| ring.submitted.load(Ordering::SeqCst) != seen)
    }
}

impl Kernel {
    /// Decides for a core that has nothing to run: a kernel core polls until its devices were idle
    /// for a while, any other idles at once.
    #[inline]
    pub fn serve(&mut self) -> Decision {
        if self.polling.is_none() { Decision::Idle } else { self.poll_until_quiet() }
    }

    #[inline(never)]
    fn poll_until_quiet(&mut self) -> Decision {
        self.polling.iter().for_each(|polling| _ = polling.say_sleeping(false));
        let mut quiet_since_ns = hardware::now_ns();
        loop {
            // Interrupts are off here: pending ones are polled.
            if !mailbox::is_empty() {
                self.woken();
            }
            self.drain_dead();
            let Some(polling) = &self.polling else { return self.decide() };
            let may_sleep = polling.may_sleep();
            let found = (0..DEVICES_MAX).map(|index| self.poll(index)).sum::<u64>();
            let now_ns = hardware::now_ns();
            if found > 0 {
                quiet_since_ns = now_ns;
            } else if may_sleep && now_ns - quiet_since_ns >= SPIN_TIMEOUT_NS {
                let is_late = self.polling.as_ref().is_some_and(|polling| polling.say_sleeping(true));
                if !is_late {
                    return self.decide();
                }
                self.polling.iter().for_each(|polling| _ = polling.say_sleeping(false));
            }
            core::hint::spin_loop();
        }
    }

    /// Polls one device; gives how much was found.
    pub(crate) fn poll(&mut self, index: usize) -> u64 {
        let Some(polling) = &mut self.polling else { return 0 };
        let caller = polling.caller;
        let Some(device) = polling.devices[index].as_mut().filter(|device| !device.stopped) else { return 0 };
        device.polls += 1;
        let found = match device.polled {
            Polled::Ring { base, pages } => {
                let seen = device.seen;
                let waiting = ring(base).submitted.load(Ordering::Acquire).wrapping_sub(seen);
                if waiting > ring_slots(pages) {
                    device.stopped = true;
                    ring(base).stopped.store(1, Ordering::Release);
                    return 0;
                }
                let count = waiting.min(BATCH);
                // A call that is not done yet goes on in the next poll.
                let is_done = |number: &u64| {
                    let is_done = self.answer(caller, slot(base, pages, *number));
                    if is_done {
                        ring(base).completed.store(number.wrapping_add(1), Ordering::Release);
                    }
                    is_done
                };
                (seen..seen.wrapping_add(count)).take_while(is_done).count() as u64
            }
            Polled::Word { at, core, slot } => {
                let now = u64::from(word(at).load(Ordering::Acquire));
                let changed = now != device.seen;
                device.seen = now;
                if changed {
                    hardware::post(core, slot);
                }
                device.found += u64::from(changed);
                return u64::from(changed);
            }
        };
        if let Some(device) = self.polling.as_mut().and_then(|polling| polling.devices[index].as_mut()) {
            device.seen = device.seen.wrapping_add(found);
            device.found += found;
        }
        found
    }

    /// Does a step of a call; tells whether that was the last.
    fn answer(&mut self, caller: Ptr<Context>, slot: &RingSlot) -> bool {
        let number = slot.number.load(Ordering::Relaxed);
        let words = core::array::from_fn(|index| slot.arguments[index].load(Ordering::Relaxed));
        let answer = match abi::Call::decode(number) {
            Some(call) => calls::dispatch_ring(self, caller, call, words),
            None => Ok(Err(Error::BadCall)),
        };
        self.drain_dead();
        let answer = match answer {
            Ok(answer) => answer,
            Err(words) => {
                slot.arguments.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
                return false;
            }
        };
        let status = match answer {
            Ok(results) => {
                slot.results.iter().zip(results).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
                0
            }
            Err(error) => (error as u64).wrapping_neg(),
        };
        slot.status.store(status, Ordering::Relaxed);
        true
    }
}
