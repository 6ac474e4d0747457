//! Revocation: an account with a program at work in it and memory that is mapped, taken back; then
//! what that costs.

use abi::layout::{protection, segment};
use abi::{Error, Handle, Rights};

use crate::sample::{SAMPLES, Stopwatch, Stretch, look, row};
use worker::{Job, Worker};

/// Pages of the account; several parts of a revocation.
const PAGES: u64 = 768;
const PAGE_BYTES: u64 = abi::PAGE_BYTES;
/// In the room of regions, past what the loader, the runtime and the other rows map there.
const PLACE: u64 = abi::layout::REGIONS + (3 << 38);
const READ_WRITE: u64 = protection::READ | protection::WRITE;
/// More than the revocation of so many pages takes.
const PARTS_MAX: u64 = 64;
const PAGE: &str = "ram-revoke-page";
const PART: &str = "ram-revoke-part";
/// A badge bit of our own.
const DEATH: u64 = 1 << runtime::OWN_BITS.start;
const LIMIT_NS: u64 = 1_000_000_000;

/// Whether what was taken back is gone and its pages are there again; says so in one line.
pub fn check() {
    match try_check() {
        Ok(parts) => runtime::log!("revoked {PAGES} pages and a program in {parts} parts, all back"),
        Err((what, None)) => runtime::log!("revoke failed: {what}"),
        Err((what, Some(error))) => runtime::log!("revoke failed: {what} is refused with {error:?}"),
    }
}

/// What is wrong, and the error of a call that was to succeed.
type Failure = (&'static str, Option<Error>);

fn refused(what: &'static str) -> impl Fn(Error) -> Failure {
    move |error| (what, Some(error))
}

fn try_check() -> Result<u64, Failure> {
    let used = || sys::ram_stat(Handle::SELF_RAM).map(|(_, used, _)| used).map_err(refused("RamStat"));
    // What stays with us, such as slots and page tables, is there after the first round.
    round()?;
    let before = used()?;
    let parts = round()?;
    if used()? == before { Ok(parts) } else { Err(("pages are missing", None)) }
}

/// A program in an account of its own is called, and revoked with all the account holds.
fn round() -> Result<u64, Failure> {
    let worker = Worker::new(0, Job::Answer).map_err(refused("making a program"))?;
    let portal = sys::portal_alloc(Handle::SELF_RAM, worker.context, 0, abi::layout::portal::RENDEZVOUS)
        .map_err(refused("PortalAlloc"))?;
    worker.start([0, 0]).map_err(refused("ContextStart"))?;
    let deadline_ns = runtime::now_ns() + LIMIT_NS;
    sys::portal_call(portal, [0; 4], deadline_ns).map_err(refused("a call of the program"))?;
    let doorbell = sys::cap_mint(Handle::SELF_CONTEXT, Rights::ALL, DEATH).map_err(refused("CapMint"))?;
    worker.on_death(doorbell).map_err(refused("DomainOnDeath"))?;
    let memory = held(worker.ram).map_err(refused("making memory"))?;
    let parts = revoke(worker.ram).map_err(refused("RamRevoke"))?;
    let told = sys::wait(deadline_ns).map_err(refused("Wait"))? & DEATH != 0;
    let (_, used, _) = sys::ram_stat(worker.ram).map_err(refused("RamStat"))?;
    let gone = |handle| sys::cap_stat(handle).is_err_and(|error| error == Error::BadHandle);
    let answers = sys::portal_call(portal, [0; 4], deadline_ns) != Err(Error::PeerDead);
    let is_mapped = sys::range_get(Handle::SELF_RANGE, PLACE).is_ok_and(|entry| entry.start == PLACE);
    sys::cap_drop(portal).and_then(|()| sys::cap_drop(doorbell)).map_err(refused("CapDrop"))?;
    let wrong = [
        (!told, "nobody is told of the program's end"),
        (!gone(memory), "a segment is still named"),
        (!gone(worker.context), "a context is still named"),
        (answers, "the program still answers"),
        (is_mapped, "memory is still mapped"),
        (used != 0, "the account is not empty"),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, what)) => Err((what, None)),
        None => Ok(parts),
    }
}

/// Pages that are there, mapped for us and touched.
fn held(ram: Handle) -> Result<Handle, Error> {
    let (memory, _) = sys::segment_alloc(ram, PAGES, segment::EAGER)?;
    sys::range_map(Handle::SELF_RANGE, PLACE, memory, 0, PAGES, READ_WRITE)?;
    for page in 0..PAGES {
        // SAFETY: just mapped read-write, known to nobody else.
        unsafe { ((PLACE + page * PAGE_BYTES) as *mut u64).write_volatile(page) };
    }
    Ok(memory)
}

/// Revokes to the end; how many calls that took.
fn revoke(ram: Handle) -> Result<u64, Error> {
    for parts in 1..=PARTS_MAX {
        // SAFETY: what is mapped of this account was touched by `held` only, and that is done.
        if unsafe { sys::ram_revoke(ram) }? {
            return Ok(parts);
        }
    }
    Err(Error::Timeout)
}

/// All rows: taking back a page that is mapped, and a call that does all it may at once.
pub async fn all() -> Result<(), Error> {
    let ram = sys::ram_split(Handle::SELF_RAM, 2 * PAGES, Handle::NONE)?;
    let mut whole = [Stretch::default(); SAMPLES];
    let mut part = [Stretch::default(); SAMPLES];
    for (whole, part) in whole.iter_mut().zip(&mut part) {
        held(ram)?;
        let watch = Stopwatch::start(PAGE, PAGES);
        revoke(ram)?;
        *whole = watch.stop();
        held(ram)?;
        let watch = Stopwatch::start(PART, 1);
        // SAFETY: as in `revoke`.
        unsafe { sys::ram_revoke(ram) }?;
        *part = watch.stop();
        revoke(ram)?;
        look().await;
    }
    row(PAGE, PAGES, &mut whole);
    row(PART, 1, &mut part);
    sys::cap_drop(ram)
}
