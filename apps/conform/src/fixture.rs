//! What a test is given: who it is, an account that pays for it, places to map at, limits.

use core::sync::atomic::AtomicU64;

use abi::layout::protection;
use abi::start::{StartRecord, channel, kind, text};
use abi::{Error, Handle, Rights};
use runtime::Start;
use worker::{Job, SHARED, ScriptedDomain, Worker};

use crate::partner;
use crate::table::Failure;

/// Readable and writable.
pub const READ_WRITE: u64 = protection::READ | protection::WRITE;
/// Longer than any step takes on a machine of many emulated cores.
const LIMIT_NS: u64 = 60_000_000_000;
/// Enough, mostly, for one who is runnable to have run.
const SOON_NS: u64 = 2_000_000;
/// Most pages of a test.
const PAGES: u64 = 3000;
/// In the room of regions, past what the loader, the runtime and workers map there.
const PLACES: u64 = abi::layout::REGIONS + (3 << 38);
/// Bytes of a place: the largest segment fits.
const PLACE_BYTES: u64 = 1 << 30;
/// Name of the region that all cores share, and its lines of 64 bytes per core.
const REGION: &str = "conform";
const LINES: u64 = 4;
const LINE_BYTES: u64 = 64;
/// Name of a region of one page.
const PAGE_REGION: &str = "conform-page";
/// Name of the pool of all cores.
const POOL: &str = "conform-pool";
/// Word of the command line that says that time is instructions
/// (`tools/pelago/src/test/scenarios/objects.rs`).
const EXACT: &str = "conform.exact-time";
/// Past the words, each core has some bytes of the region for itself.
const ROOM: u64 = 64 << 10;
const ROOM_BYTES: u64 = 256;

/// A piece of the shared region.
pub struct Place {
    /// Where this program sees it.
    pub address: u64,
    /// The page of the region that it is in.
    pub page: u64,
    /// Where in that page.
    pub offset: u64,
}

/// See the module's head.
pub struct Fixture {
    start: Start,
    ram: Handle,
    shared: u64,
}

impl Fixture {
    /// With an account of its own.
    pub fn new(start: &Start) -> Result<Fixture, Failure> {
        let region = start.region(REGION).ok_or_else(|| Failure::new("the description gives no region `conform`"))?;
        if region.bytes < ROOM + u64::from(start.cores()) * ROOM_BYTES
            || u64::from(start.cores()) * LINES * LINE_BYTES > ROOM
        {
            return Err(Failure::new("the region `conform` is too small for so many cores"));
        }
        Ok(Fixture {
            start: start.clone(),
            ram: sys::ram_split(Handle::SELF_RAM, PAGES, Handle::NONE)?,
            shared: region.address,
        })
    }

    /// The account that pays for the test.
    pub fn ram(&self) -> Handle {
        self.ram
    }

    /// This core.
    pub fn core(&self) -> u64 {
        self.start.core().into()
    }

    /// Cores of the machine.
    pub fn cores(&self) -> u64 {
        self.start.cores().into()
    }

    /// Whether lengths of time can be judged: an emulator's core otherwise stands still whenever
    /// its host has other things to do.
    pub fn has_exact_time(&self) -> bool {
        self.start.command_line().split(' ').any(|word| word == EXACT)
    }

    /// The core whose [`crate::Partner`] this one has.
    pub fn next_core(&self) -> u64 {
        (self.core() + 1) % self.cores()
    }

    /// The start page.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// One of several addresses that are free for a test, 1 GiB each.
    pub fn place(&self, number: u64) -> u64 {
        PLACES + number * PLACE_BYTES
    }

    /// A deadline that only what never comes misses.
    pub fn deadline_ns(&self) -> u64 {
        runtime::now_ns() + LIMIT_NS
    }

    /// A deadline for what is not to come.
    pub fn soon_ns(&self) -> u64 {
        runtime::now_ns() + SOON_NS
    }

    /// A domain with a job, paid by the test. `number` tells those that live at the same time
    /// apart.
    pub fn worker(&self, number: u64, job: Job) -> Result<Worker, Error> {
        Worker::paid_by(self.ram, number, job)
    }

    /// A domain that makes calls, loads and stores as told, paid by the test.
    pub fn scripted(&self, number: u64) -> Result<ScriptedDomain, Error> {
        ScriptedDomain::paid_by(self.ram, number)
    }

    /// Where a scripted domain and its test see the same page: there.
    pub fn shared_with_scripted(&self) -> u64 {
        SHARED
    }

    /// Maps all of a segment at a place, readable and writable.
    pub fn map(&self, place: u64, segment: Handle, pages: u64) -> Result<u64, Error> {
        let address = self.place(place);
        sys::range_map(Handle::SELF_RANGE, address, segment, 0, pages, READ_WRITE)?;
        Ok(address)
    }

    /// Unmaps what [`Fixture::map`] mapped.
    pub fn unmap(&self, place: u64, pages: u64) -> Result<u64, Error> {
        // SAFETY: memory of places is reached by `load` and `store` only.
        unsafe { sys::range_unmap(Handle::SELF_RANGE, self.place(place), pages) }
    }

    /// Reads a word of a place.
    pub fn load(&self, address: u64) -> u64 {
        // SAFETY: the test mapped it; places hold words that nobody borrows.
        unsafe { (address as *const u64).read_volatile() }
    }

    /// Writes a word of a place.
    pub fn store(&self, address: u64, value: u64) {
        // SAFETY: as for `load`.
        unsafe { (address as *mut u64).write_volatile(value) }
    }

    /// A word that all cores see; each core has some of its own (`number` below 4).
    pub fn shared(&self, core: u64, number: u64) -> &AtomicU64 {
        let line = (core % self.cores()) * LINES + number % LINES;
        // SAFETY: `new` checked that the region has these lines; mapped for the component's life,
        // used as atomics only.
        unsafe { &*((self.shared + line * LINE_BYTES) as *const AtomicU64) }
    }

    /// The region that all cores share, and 256 bytes of it that are this core's to use.
    pub fn shared_page(&self) -> Result<(Handle, Place), Failure> {
        let region = self.start.region(REGION).ok_or_else(|| Failure::new("no region `conform`"))?;
        let at = ROOM + self.core() * ROOM_BYTES;
        let place = Place { address: region.address + at, page: at / abi::PAGE_BYTES, offset: at % abi::PAGE_BYTES };
        Ok((region.handle, place))
    }

    /// A region of one page that all cores share.
    pub fn region_page(&self) -> Result<Handle, Failure> {
        let region = self.start.region(PAGE_REGION).ok_or_else(|| Failure::new("no region `conform-page`"))?;
        Ok(region.handle)
    }

    /// The first share of the pool of all cores.
    pub fn pool(&self) -> Result<Handle, Failure> {
        self.start.pool(POOL).ok_or_else(|| Failure::new("the description gives no pool `conform-pool`"))
    }

    /// This core's own pcore.
    pub fn pcore(&self) -> Result<Handle, Failure> {
        self.start.capability("cores").ok_or_else(|| Failure::new("the description does not give `cores`"))
    }

    /// A notification of ours with one of the badge bits that no channel has (0 to 7), and the bit.
    pub fn doorbell(&self, bit: u32) -> Result<(Handle, u64), Error> {
        let badge = 1 << (runtime::OWN_BITS.start + bit);
        Ok((sys::cap_mint(Handle::SELF_CONTEXT, Rights::ALL, badge)?, badge))
    }

    /// Sleeps until one of the bits came, or the deadline passed (0). Bits of others are handed on
    /// to the executor.
    pub fn wait_for(&self, mask: u64, deadline_ns: u64) -> Result<u64, Error> {
        loop {
            let bits = sys::wait(deadline_ns)?;
            executor::post(bits & !mask);
            if bits & mask != 0 || runtime::now_ns() >= deadline_ns {
                return Ok(bits & mask);
            }
        }
    }

    /// Takes what came, for the executor to see later. A test that loops calls this now and then:
    /// a component that does not look at what is pending is taken for hung.
    pub fn look(&self) -> Result<(), Error> {
        executor::post(sys::wait(0)?);
        Ok(())
    }

    /// Sleeps until something holds that others bring about; `what` is said if it does not.
    pub fn until(&self, what: &str, holds: impl Fn() -> bool) -> Result<(), Failure> {
        let deadline_ns = self.deadline_ns();
        while !holds() {
            if runtime::now_ns() > deadline_ns {
                return Err(Failure::new(alloc::format!("waited in vain until {what}")));
            }
            self.wait_for(0, self.soon_ns())?;
        }
        Ok(())
    }

    /// The doorbell of the next core and the badge bits by which that core rings us, of the channel
    /// on which we ask it things.
    pub fn next_doorbell(&self) -> Option<(Handle, u64)> {
        self.wire(channel::CLIENT)
    }

    /// The same of the channel on which the core before us asks.
    pub fn previous_doorbell(&self) -> Option<(Handle, u64)> {
        self.wire(0)
    }

    fn wire(&self, side: u64) -> Option<(Handle, u64)> {
        let is_it = |record: &&StartRecord| {
            record.kind == kind::CHANNEL && text(&record.name) == partner::NAME && record.b & channel::CLIENT == side
        };
        self.start.records().iter().find(is_it).map(|record| (Handle(record.handle), record.a))
    }

    /// Takes back an account of the test's, with all that it paid for.
    pub fn revoke(&self, account: Handle) -> Result<(), Error> {
        // SAFETY: what tests map is reached by `load` and `store` only.
        while !unsafe { sys::ram_revoke(account) }? {}
        Ok(())
    }

    /// Takes back what the test left: an error if that was anything.
    pub fn end(&self, is_to_be_empty: bool) -> Result<(), Failure> {
        let (_, used, _) = sys::ram_stat(self.ram)?;
        self.revoke(self.ram)?;
        sys::cap_drop(self.ram)?;
        if used == 0 || !is_to_be_empty { Ok(()) } else { Err(Failure::new(alloc::format!("leaves {used} pages"))) }
    }
}
