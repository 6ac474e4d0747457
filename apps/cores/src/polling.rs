//! Kernel cores: a core that runs no program, polls its devices and does calls that others put into
//! rings.

use abi::layout::counter;
use abi::pcore::polled;
use abi::{Call, Error, Handle, ObjectType, PAGE_BYTES};
use alloc::format;
use alloc::string::String;
use contracts::monitor::{CoreRuns, CoreUse};
use core::sync::atomic::Ordering;
use sys::CallRing;

use crate::claim::{Claim, LIMIT_NS, PAUSE_NS, again, launch, used};
use crate::page::Pages;
use crate::{Bench, Outcome, ensure, must_be, refused};

/// Our badge bit for changes of a polled word.
const WORD_CHANGED: u64 = 1 << 62;
const CALLS: u64 = 310;
/// So often so many without a call into the kernel, however the host shares its time.
const QUIET_PARTS: u64 = 3;
const QUIET_LIMIT_NS: u64 = 6 * LIMIT_NS;
/// Any wake slot of a kernel core wakes it.
const WAKE_SLOT: u64 = 1;

/// A word for a kernel core to poll.
pub struct Word {
    /// Where it is,
    pub segment: Handle,
    /// in bytes from its start,
    pub offset: u64,
    /// and our badge bit for its changes.
    pub badge: u64,
}

/// A kernel core with two rings and perhaps words that it polls.
pub struct KernelCore {
    claim: Claim,
    rings: [CallRing; 2],
    word: Pages,
    _pages: [Pages; 2],
}

impl KernelCore {
    async fn new(bench: &Bench, with_word: bool) -> Result<KernelCore, String> {
        let word = Pages::new(1).map_err(refused("SegmentAlloc"))?;
        let own = [Word { segment: word.segment, offset: 6, badge: WORD_CHANGED }];
        KernelCore::run(bench, if with_word { &own } else { &[] }, word).await
    }

    /// One that polls these words after its rings.
    pub async fn polling(bench: &Bench, words: &[Word]) -> Result<KernelCore, String> {
        KernelCore::run(bench, words, Pages::new(1).map_err(refused("SegmentAlloc"))?).await
    }

    async fn run(bench: &Bench, words: &[Word], word: Pages) -> Result<KernelCore, String> {
        let claim = Claim::of_last(bench).await?;
        let _pages = [Pages::new(1).map_err(refused("SegmentAlloc"))?, Pages::new(2).map_err(refused("SegmentAlloc"))?];
        let doorbell = sys::wake_slot_import(bench.cores, Handle::SELF_RAM, claim.core, WAKE_SLOT);
        let doorbell = doorbell.map_err(refused("WakeSlotImport"))?;
        let rings = [_pages[0].ring(doorbell), _pages[1].ring(doorbell)];
        for (index, pages) in (0..).zip(&_pages) {
            let added = sys::pcore_add_ring(claim.pcore, pages.segment).map_err(refused("PcoreAddDevice"))?;
            ensure(added == index, || format!("device {index} became {added}"))?;
        }
        for polled in words {
            let slot = sys::wake_slot_alloc(bench.cores, Handle::SELF_CONTEXT, polled.badge);
            let slot = slot.map_err(refused("WakeSlotAlloc"))?;
            sys::pcore_add_word(claim.pcore, polled.segment, polled.offset, 0, slot)
                .map_err(refused("PcoreAddDevice"))?;
        }
        let mut plan = launch(0, 0, 0, &[(word.segment, 0, 0)]);
        plan.rights = abi::Rights::READ.0.into();
        sys::pcore_run(claim.pcore, &plan).map_err(refused("PcoreRun"))?;
        must_be(sys::pcore_add_ring(claim.pcore, word.segment), Error::Busy, "PcoreAddDevice of a core that runs")?;
        Ok(KernelCore { claim, rings, word, _pages })
    }

    /// Index of the first word among its devices.
    pub fn first_word(&self) -> u64 {
        self.rings.len() as u64
    }

    /// One call by a ring.
    pub async fn call(&mut self, ring: usize, call: Call, words: [u64; 6]) -> Result<Result<[u64; 3], Error>, String> {
        self.rings[ring].submit(call, words).map_err(refused("a request"))?;
        let end_ns = runtime::now_ns() + LIMIT_NS;
        loop {
            if let Some(reply) = self.rings[ring].take() {
                return Ok(reply);
            }
            again(end_ns, "no reply from the kernel core").await?;
        }
    }

    /// The next reply, without a call of ours.
    fn spin_for_reply(&mut self, ring: usize) -> Result<Result<[u64; 3], Error>, String> {
        let end_ns = runtime::now_ns() + LIMIT_NS;
        loop {
            if let Some(reply) = self.rings[ring].take() {
                return Ok(reply);
            }
            ensure(runtime::now_ns() < end_ns, || String::from("no reply from the kernel core"))?;
            core::hint::spin_loop();
        }
    }

    async fn done(&mut self, call: Call, words: [u64; 6]) -> Result<[u64; 3], String> {
        self.call(0, call, words).await?.map_err(|error| format!("{call:?} by a ring: {}", error.name()))
    }

    async fn counter(&mut self, index: u64) -> Result<u64, String> {
        self.done(Call::CounterRead, [index, 0, 0, 0, 0, 0]).await.map(|results| results[0])
    }

    /// Polls of a device, and what was found there.
    pub async fn stat(&mut self, index: u64) -> Result<[u64; 3], String> {
        self.done(Call::PcoreDeviceStat, [index, 0, 0, 0, 0, 0]).await
    }

    /// Gives the core back to the system.
    pub async fn end(self, bench: &Bench) -> Outcome {
        self.claim.release(bench).await
    }
}

/// Calls by a ring are done on the kernel core and enter no kernel here; it runs no program; what
/// is not on the list is refused.
pub async fn calls(bench: &Bench) -> Outcome {
    let mut core = KernelCore::new(bench, true).await?;
    let number = core.claim.core;
    let current = core.done(Call::PcoreCurrent, [0; 6]).await?;
    ensure(current[0] == number, || format!("the call was done on core {}", current[0]))?;
    // The word that it has started is with us by now, and is read here: nothing is pending while we
    // spin.
    runtime::sleep(PAUSE_NS).await;
    // In parts, as others of this core are beaten by their monitor meanwhile. The reading of the
    // counter is one; a core that polls a word does not sleep.
    let (mut quiet, mut entered_last) = (0, 0);
    let end_ns = runtime::now_ns() + QUIET_LIMIT_NS;
    while quiet < QUIET_PARTS {
        ensure(runtime::now_ns() < end_ns, || {
            format!("{quiet} quiet parts, in the last {entered_last} calls entered for {CALLS} by the ring")
        })?;
        let before = entered()?;
        let (mut asked, mut answered) = (0, 0);
        while answered < CALLS {
            while asked < CALLS && core.rings[0].submit(Call::Null, [0; 6]).is_ok() {
                asked += 1;
            }
            core.spin_for_reply(0)?.map_err(refused("Null by a ring"))?;
            answered += 1;
        }
        entered_last = entered()? - before;
        quiet += u64::from(entered_last == 1);
    }
    let before = core.done(Call::RamStat, [Handle::SELF_RAM.0, 0, 0, 0, 0, 0]).await?;
    let segment =
        core.done(Call::SegmentAlloc, [Handle::SELF_RAM.0, 4, abi::layout::segment::CONTIGUOUS, 0, 0, 0]).await?;
    let after = core.done(Call::RamStat, [Handle::SELF_RAM.0, 0, 0, 0, 0, 0]).await?;
    ensure(before[2] >= after[2] + 4, || {
        format!("free pages of the kernel core: {} and then {}", before[2], after[2])
    })?;
    core.done(Call::CapDrop, [segment[0], 0, 0, 0, 0, 0]).await?;
    for call in [Call::PcoreHalt, Call::Wait, Call::RangeMap, Call::Log, Call::DomainExit, Call::ContextStart] {
        must_be(
            core.call(0, call, [Handle::PCORE.0, 0, 0, 0, 0, 0]).await?,
            Error::BadCall,
            "a call that no ring may make",
        )?;
    }
    must_be(core.call(0, Call::CapStat, [500, 0, 0, 0, 0, 0]).await?, Error::BadHandle, "CapStat of nothing")?;
    let given = core.done(Call::CapStat, [Handle::FIRST_FREE.0, 0, 0, 0, 0, 0]).await?;
    ensure(given[0] == ObjectType::Segment as u64, || format!("it got an object of type {}", given[0]))?;
    core.end(bench).await
}

/// A kernel core whose rings are empty sleeps, is woken by the next request, and has run no program
/// all along.
pub async fn sleep(bench: &Bench) -> Outcome {
    let mut core = KernelCore::new(bench, false).await?;
    let number = core.claim.core;
    let switches = core.counter(counter::SWITCHES).await?;
    let own = core.counter(counter::CALLS).await?;
    for _ in 0..3 {
        asleep(&core).await?;
        let wakes = core.rings[0].wakes();
        let current = core.done(Call::PcoreCurrent, [0; 6]).await?;
        ensure(current[0] == number, || String::from("no answer from its sleep"))?;
        let woken = core.rings[0].wakes() - wakes;
        ensure(woken == 1, || format!("{woken} wake-ups for one request"))?;
    }
    let idles = core.counter(counter::IDLES).await?;
    ensure(idles > 0, || String::from("it said that it sleeps and did not"))?;
    let now = (core.counter(counter::SWITCHES).await?, core.counter(counter::CALLS).await?);
    ensure(now == (switches, own), || format!("it switched to programs: {now:?} after {:?}", (switches, own)))?;
    runtime::log!(
        "core {number} was a kernel core: 0 switches to programs, {} calls done by ring",
        core.stat(0).await?[2]
    );
    core.end(bench).await
}

/// A kernel core is told as ours, and that no program has had it, however much it does. It is kept
/// for the scenario that looks from outside.
pub async fn kept(bench: &Bench) -> Outcome {
    let mut core = KernelCore::new(bench, false).await?;
    for _ in 0..CALLS {
        core.done(Call::Null, [0; 6]).await?;
    }
    let found = used(bench, core.claim.core).await?;
    let wanted = CoreUse { runs: CoreRuns::KernelCore, claimed_by: "cores".into(), programs_ns: 0 };
    ensure(found == wanted, || format!("it is told as {found:?}"))?;
    runtime::log!("core {} is kept as a kernel core", core.claim.core);
    core::mem::forget(core);
    Ok(())
}

/// Calls that entered this core's kernel.
fn entered() -> Result<u64, String> {
    sys::counter_read(counter::CALLS).map_err(refused("CounterRead"))
}

/// Waits until the kernel core says that it sleeps.
async fn asleep(core: &KernelCore) -> Outcome {
    let end_ns = runtime::now_ns() + LIMIT_NS;
    while core.rings[0].header().sleeping.load(Ordering::Acquire) == 0 {
        again(end_ns, "an idle kernel core does not sleep").await?;
    }
    Ok(())
}

/// All devices are polled; a device's word that changes wakes whom it should, without an interrupt
/// of the device; a core that polls a word does not sleep.
pub async fn devices(bench: &Bench) -> Outcome {
    let mut core = KernelCore::new(bench, true).await?;
    let kinds = [polled::RING, polled::RING, polled::WORD];
    let before = [core.stat(0).await?, core.stat(1).await?, core.stat(2).await?];
    for change in 1..=3 {
        core.word.short(3).store(change, Ordering::Release);
        let told = runtime::timeout(LIMIT_NS, runtime::notified(WORD_CHANGED)).await;
        ensure(told.is_ok(), || format!("change {change} of the word was not told"))?;
    }
    core.call(1, Call::Null, [0; 6]).await?.map_err(refused("Null by the second ring"))?;
    for (index, before) in before.iter().enumerate() {
        let after = core.stat(index as u64).await?;
        ensure(after[0] == kinds[index], || format!("device {index} is of kind {}", after[0]))?;
        ensure(after[1] > before[1], || format!("device {index} was polled {} times, then {}", before[1], after[1]))?;
    }
    let found = [core.stat(1).await?[2], core.stat(2).await?[2]];
    ensure(found == [1, 3], || format!("found {found:?}"))?;
    must_be(
        core.call(0, Call::PcoreDeviceStat, [3, 0, 0, 0, 0, 0]).await?,
        Error::NotFound,
        "PcoreDeviceStat past the last",
    )?;
    core.end(bench).await
}

/// A ring with an impossible count stops and harms nobody but its user.
pub async fn corrupt(bench: &Bench) -> Outcome {
    let mut core = KernelCore::new(bench, false).await?;
    core.done(Call::Null, [0; 6]).await?;
    core.rings[1].header().submitted.store(1 << 50, Ordering::SeqCst);
    core.done(Call::Null, [0; 6]).await?;
    let end_ns = runtime::now_ns() + LIMIT_NS;
    while core.rings[1].header().stopped.load(Ordering::Acquire) == 0 {
        core.done(Call::Null, [0; 6]).await?;
        ensure(runtime::now_ns() < end_ns, || String::from("the corrupt ring is not stopped"))?;
    }
    // Garbage all over the first ring: each request is refused or done, and the core goes on.
    let slots = abi::pcore::ring_slots(1);
    for word in 16..PAGE_BYTES / 8 {
        core._pages[0].word(word).store(word.wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
    }
    for _ in 0..slots {
        core.done(Call::Null, [0; 6]).await?;
    }
    core.end(bench).await
}
