//! Links between monitor 0 and the others: a channel in memory of core 0, and one page by which
//! both sides tell each other how to ring.

use alloc::rc::Rc;
use alloc::string::ToString;
use core::any::Any;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::layout::{REGIONS, portal};
use abi::pcore::Launch;
use abi::{Error, Handle, PAGE_BYTES, Rights};
use channel::{ClientChannel, Doorbell, Layout, Memory, ServerChannel, Wiring};
use contracts::monitor::MonitorClient;
use monitor_core::{DEATH_BADGES, STALL_BADGES};
use runtime::Start;

/// What the kernel calls the region it gives a monitor that was started by another.
const NAME: &str = "link";
/// The monitor's bits for its links, shared in turn: a ring makes it look at those of one bit.
const LINK_BIT_FIRST: u64 = 16;
const LINK_BITS: u64 = 16;
/// The bit for greetings.
pub const GREETED: u64 = 1 << 39;
/// The bit for cores that started or halted.
pub const CORE_CHANGED: u64 = 1 << 38;
const _: () =
    assert!((GREETED | CORE_CHANGED | ((1 << LINK_BITS) - 1) << LINK_BIT_FIRST) & (DEATH_BADGES | STALL_BADGES) == 0);

/// The page after the channel: words 0 and 1 are the numbers by which each side rings the other (0
/// is not told yet), word 2 is where the clock page lies.
struct Greeting {
    base: u64,
}

impl Greeting {
    fn word(&self, index: u64) -> &AtomicU64 {
        // SAFETY: the page is mapped for the monitor's life, shared memory of atomics only, and
        // holds these three words.
        unsafe { &*((self.base + 8 * index) as *const AtomicU64) }
    }
}

/// The near end of a link to another core; its memory serves all runs of that core.
pub struct Link {
    core: u32,
    segment: Handle,
    physical: u64,
    address: u64,
    bytes: u64,
    keeper: Rc<dyn Any>,
    greeting: Greeting,
    badge: u64,
    /// Where the far end rings, and our number for it.
    entrance: Handle,
    slot: u64,
    /// While the core is ours: the claim on it.
    pcore: Cell<Option<Handle>>,
    /// What rings the far end.
    doorbell: Cell<Option<Handle>>,
}

fn layout() -> Layout {
    Layout::default()
}

impl Link {
    /// Makes the memory of a link; nothing runs there yet.
    pub fn new(core: u32) -> Result<Link, Error> {
        let pages = layout().bytes() / PAGE_BYTES + 1;
        let (segment, physical) = sys::segment_alloc(Handle::ROOT_RAM, pages, abi::layout::segment::CONTIGUOUS)?;
        let (address, bytes, keeper) = runtime::map_segment(segment)?;
        let greeting = Greeting { base: address + bytes - PAGE_BYTES };
        let badge = 1 << (LINK_BIT_FIRST + core as u64 % LINK_BITS);
        let entrance = sys::portal_alloc(Handle::ROOT_RAM, Handle::SELF_CONTEXT, badge | GREETED, portal::MAILBOX)?;
        let slot = sys::wake_slot_alloc(Handle::PCORE, entrance, 0)?;
        let (pcore, doorbell) = (Cell::new(None), Cell::new(None));
        Ok(Link { core, segment, physical, address, bytes, keeper, greeting, badge, entrance, slot, pcore, doorbell })
    }

    /// The core it leads to.
    pub fn core(&self) -> u32 {
        self.core
    }

    /// Its memory: physical address and pages.
    pub fn place(&self) -> (u64, u64) {
        (self.physical, self.bytes / PAGE_BYTES)
    }

    /// Claims the core and runs a monitor there. No client of an earlier run is left. `Busy` if it
    /// was not given back: what runs there uses the memory.
    pub fn start(&self, clock_place: u64) -> Result<Memory, Error> {
        if self.pcore.get().is_some() {
            return Err(Error::Busy);
        }
        // SAFETY: mapped while the keeper lives; nobody uses it before the core runs, and the
        // core that did has halted. The last page is left out of the channel.
        let memory = unsafe {
            core::ptr::write_bytes(self.address as *mut u8, 0, self.bytes as usize);
            Memory::format(self.address, self.bytes - PAGE_BYTES, layout(), Some(self.keeper.clone()))
        };
        let memory = memory.map_err(|_| Error::BadArgument)?;
        self.greeting.word(2).store(clock_place, Ordering::Relaxed);
        self.greeting.word(0).store(self.slot, Ordering::Release);
        let pcore = sys::pcore_alloc(Handle::PCORE, Handle::ROOT_RAM, self.core.into())?;
        match self.run(pcore) {
            Ok(()) => self.pcore.set(Some(pcore)),
            Err(error) => {
                sys::cap_drop(pcore)?;
                return Err(error);
            }
        }
        Ok(memory)
    }

    fn run(&self, pcore: Handle) -> Result<(), Error> {
        let doorbell = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, CORE_CHANGED)?;
        let watched = sys::pcore_watch(pcore, doorbell);
        sys::cap_drop(doorbell)?;
        watched?;
        let mut launch = Launch { count: 1, ..Launch::default() };
        launch.segments[0].handle = self.segment.0;
        sys::pcore_run(pcore, &launch)
    }

    /// Has the other side told how to ring it?
    pub fn is_up(&self) -> bool {
        self.greeting.word(1).load(Ordering::Acquire) != 0
    }

    /// The client over the link; `is_up` said yes.
    pub fn client(&self, memory: Memory) -> Result<MonitorClient, Error> {
        let slot = self.greeting.word(1).load(Ordering::Acquire);
        let doorbell = sys::wake_slot_import(Handle::PCORE, Handle::ROOT_RAM, self.core.into(), slot)?;
        self.doorbell.set(Some(doorbell));
        Ok(MonitorClient::new(ClientChannel::new(wiring(memory, doorbell, self.badge))))
    }

    /// Notifies the core's monitor, as its beat. Fine if it is not up.
    pub fn ring(&self) {
        // A monitor that cannot be notified is gone, which the kernel tells.
        let _ = self.doorbell.get().map(sys::notify);
    }

    /// Halts the core; `is_halted` says when it has.
    pub fn halt(&self) -> Result<(), Error> {
        self.pcore.get().map_or(Err(Error::NotFound), sys::pcore_halt)
    }

    /// Whether the core stands still.
    pub fn is_halted(&self) -> bool {
        sys::pcore_stat(self.core.into()).is_ok_and(|(_, _, running)| !running)
    }

    /// Gives the core back to the pool. No client is left.
    pub fn release_core(&self) {
        for held in [self.doorbell.take(), self.pcore.take()].into_iter().flatten() {
            // A capability of ours that is there.
            let _ = sys::cap_drop(held);
        }
    }
}

impl Link {
    /// Gives back all but the memory, which goes with its last user: for a core that was lost,
    /// whose clients may not all be gone yet.
    pub fn discard(&self) {
        self.release_core();
        // They are ours and there.
        let _ = sys::wake_slot_free(Handle::PCORE, self.slot);
        let _ = sys::cap_drop(self.entrance);
    }
}

/// Where the clock page lies, as core 0's monitor told it; `None` at core 0.
pub fn clock_place(start: &Start) -> Option<u64> {
    start.region(NAME).and_then(|region| clock_place_in(region.address, region.bytes))
}

fn clock_place_in(address: u64, bytes: u64) -> Option<u64> {
    let greeting = Greeting { base: address + bytes.checked_sub(PAGE_BYTES)? };
    Some(greeting.word(2).load(Ordering::Relaxed))
}

/// The far end, in the monitor that was started; `None` at core 0.
pub fn far_end(start: &Start) -> Option<Result<ServerChannel, Error>> {
    start.region(NAME).map(|region| answer(region.address, region.bytes))
}

fn answer(address: u64, bytes: u64) -> Result<ServerChannel, Error> {
    if address < REGIONS || bytes < 2 * PAGE_BYTES {
        return Err(Error::BadArgument);
    }
    // SAFETY: the kernel mapped the region for the monitor's life; the last page is left out.
    let memory = unsafe { Memory::attach(address, bytes - PAGE_BYTES, None) }.map_err(|_| Error::BadArgument)?;
    let greeting = Greeting { base: address + bytes - PAGE_BYTES };
    let badge = 1 << LINK_BIT_FIRST;
    let slot = greeting.word(0).load(Ordering::Acquire);
    let doorbell = sys::wake_slot_import(Handle::PCORE, Handle::ROOT_RAM, 0, slot)?;
    let entrance = sys::portal_alloc(Handle::ROOT_RAM, Handle::SELF_CONTEXT, badge, portal::MAILBOX)?;
    greeting.word(1).store(sys::wake_slot_alloc(Handle::PCORE, entrance, 0)?, Ordering::Release);
    sys::notify(doorbell)?;
    Ok(ServerChannel::new(wiring(memory, doorbell, badge)))
}

fn wiring(memory: Memory, doorbell: Handle, badge: u64) -> Wiring {
    Wiring {
        memory,
        doorbell: Doorbell::Notify(doorbell),
        badge,
        remote: true,
        peer: "monitor".to_string(),
        peer_set: 0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;

    #[derive(Clone)]
    #[repr(C, align(4096))]
    struct Page([u64; 512]);

    const PHYSICAL: u64 = 0x7_0000;
    const SLOT: u64 = 33;

    /// A link in plain memory, which is there for ever.
    pub(crate) fn played(core: u32) -> Link {
        let pages = layout().bytes() / PAGE_BYTES + 1;
        let address = vec![Page([!0; 512]); pages as usize].leak().as_mut_ptr() as u64;
        let bytes = pages * PAGE_BYTES;
        Link {
            core,
            segment: Handle(1),
            physical: PHYSICAL,
            address,
            bytes,
            keeper: Rc::new(()),
            greeting: Greeting { base: address + bytes - PAGE_BYTES },
            badge: 1,
            entrance: Handle(2),
            slot: SLOT,
            pcore: Cell::new(None),
            doorbell: Cell::new(None),
        }
    }

    /// On a host no core runs; up to there it is as on a machine.
    #[test]
    fn a_core_is_told_how_to_ring_and_where_the_clock_is_before_it_runs() {
        let link = played(3);
        assert_eq!((link.core(), link.place()), (3, (PHYSICAL, layout().bytes() / PAGE_BYTES + 1)));
        assert_eq!(link.start(0x9000).map(drop), Err(Error::BadCall));
        assert_eq!([0, 1, 2].map(|word| link.greeting.word(word).load(Ordering::Relaxed)), [SLOT, 0, 0x9000]);
        // They lie at the beginning of the last page.
        let at = link.address + link.bytes - PAGE_BYTES;
        // SAFETY: it is there for ever, and nobody writes it now.
        let words = unsafe { core::slice::from_raw_parts(at as *const u64, 3) };
        assert_eq!(words, [SLOT, 0, 0x9000]);
        assert_eq!(clock_place_in(link.address, link.bytes), Some(0x9000));
        assert_eq!(clock_place_in(link.address + link.bytes - PAGE_BYTES, PAGE_BYTES), Some(0x9000));
        assert_eq!(clock_place_in(link.address, PAGE_BYTES - 1), None);
        // SAFETY: it is there for ever, and nobody else uses it.
        let memory = unsafe { Memory::attach(link.address, link.bytes - PAGE_BYTES, None) };
        assert_eq!(memory.map(|memory| memory.layout()), Ok(layout()));
    }

    #[test]
    fn a_core_is_up_when_it_told_how_to_ring_it_and_not_by_what_the_one_before_told() {
        let link = played(1);
        assert!(link.start(0).is_err() && !link.is_up());
        link.greeting.word(1).store(5, Ordering::Release);
        assert!(link.is_up());
        assert!(link.start(0).is_err() && !link.is_up());
    }

    #[test]
    fn a_core_that_was_not_given_back_is_not_started_again() {
        let link = played(1);
        link.pcore.set(Some(Handle(5)));
        assert_eq!(link.start(0x9000).map(drop), Err(Error::Busy));
        assert_eq!(link.greeting.word(2).load(Ordering::Relaxed), !0, "what runs there has its memory");
        link.release_core();
        assert_eq!(link.start(0x9000).map(drop), Err(Error::BadCall), "the kernel is asked");
    }

    #[test]
    fn a_core_that_was_given_back_is_not_halted_again() {
        let give_back: [fn(&Link); 2] = [Link::release_core, Link::discard];
        for give_back in give_back {
            let link = played(1);
            assert_eq!(link.halt(), Err(Error::NotFound));
            link.pcore.set(Some(Handle(5)));
            link.doorbell.set(Some(Handle(6)));
            assert_eq!(link.halt(), Err(Error::BadCall), "the kernel is asked");
            give_back(&link);
            assert_eq!((link.halt(), link.doorbell.get()), (Err(Error::NotFound), None));
            assert!(!link.is_halted(), "nobody says so");
        }
    }

    #[test]
    fn a_region_that_holds_no_link_is_refused() {
        for bytes in [0, PAGE_BYTES - 1, PAGE_BYTES, 2 * PAGE_BYTES - 1] {
            assert_eq!(answer(REGIONS, bytes).map(drop), Err(Error::BadArgument), "{bytes:#x}");
        }
        for address in [0, 0x10_0000, REGIONS - 1] {
            assert_eq!(answer(address, 9 * PAGE_BYTES).map(drop), Err(Error::BadArgument), "{address:#x}");
        }
        let start = Start::read();
        assert!(far_end(&start).is_none() && clock_place(&start).is_none(), "core 0 has none");
    }
}
