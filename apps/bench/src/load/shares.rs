//! Shares (Corey figure 9): adding and removing a name in the core's root share, in a shared share
//! that one core uses, and in shares that all cores use, by kind of lock.
//!
//! Before the rows all cores map one segment through a share and write to it; the first core says
//! in a line whether it sees them all. Lines of the region: 32 the common segment's id, 33 those
//! that wrote, 34 on the common shares' ids.

use abi::layout::{lock, protection};
use abi::{Error, Handle, Rights};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use runtime::Start;

use super::Room;

/// Name of the pool of all.
pub(super) const POOL: &str = "load-shares";
const SEGMENT: u64 = 32;
const WRITTEN: u64 = 33;
const SHARES: u64 = 34;
const NAME: [u64; 2] = [u64::from_le_bytes(*b"common s"), u64::from_le_bytes(*b"egment\0\0")];
const KINDS: [(u64, &str); 4] = [
    (lock::SPIN, "share-add-remove/global-spin"),
    (lock::READ_WRITE, "share-add-remove/global-read-write"),
    (lock::MCS, "share-add-remove/global-mcs"),
    (lock::SCALABLE_READ_WRITE, "share-add-remove/global-scalable"),
];
/// Pages of a core's own pool: the share, its segment, names.
const OWN_PAGES: u64 = 16;
/// In the room of regions, past what the other rows map there.
const PLACE: u64 = abi::layout::REGIONS + (3 << 38) + (1 << 30);
const ALL: Rights = Rights::ALL;
/// Names added and removed in a row.
const TURNS: u64 = 500;

/// A segment in a share, with a name in the root share besides: what is added elsewhere and removed
/// again.
#[derive(Clone, Copy, Default)]
struct Named {
    share: Option<Handle>,
    object: Option<Handle>,
    id: u64,
}

/// What a core adds and removes.
#[derive(Default)]
pub(super) struct Objects {
    refused: Cell<u64>,
    own: Named,
    global: [Named; KINDS.len()],
}

impl Named {
    /// One name more and less.
    fn turn(&self) -> Result<(), Error> {
        let (Some(share), Some(object)) = (self.share, self.object) else { return Err(Error::NotFound) };
        sys::share_add(share, object, ALL)?;
        sys::share_remove(share, self.id)
    }
}

impl Objects {
    /// A refusal is told at the end.
    fn count(&self, outcome: Result<(), Error>) {
        self.refused.set(self.refused.get() + u64::from(outcome.is_err()));
    }

    fn turn_global(&self, index: usize) {
        self.count(self.global[index].turn());
    }

    fn turn_root(&self) -> Result<(), Error> {
        sys::cap_copy(self.own.object.ok_or(Error::NotFound)?, ALL).and_then(sys::cap_drop)
    }
}

fn made(home: Handle) -> Result<(Handle, u64), Error> {
    let (handle, id) = sys::share_segment(home, 1, [0; 2], 0)?;
    Ok((sys::share_add(Handle::NONE, handle, ALL)?, id))
}

impl Room {
    fn post(&self, line: u64, value: u64) {
        self.line(line).store(value, Ordering::Release);
    }

    fn read(&self, line: u64) -> u64 {
        self.line(line).load(Ordering::Acquire)
    }

    /// All cores at one segment, found by its id in the common share.
    fn check_sharing(&mut self, common: Handle) -> Result<bool, Error> {
        if self.core == 0 {
            let (_, id) = sys::share_segment(common, 1, NAME, 0)?;
            self.post(SEGMENT, id);
        }
        self.meet();
        let id = self.read(SEGMENT);
        let segment = Handle::in_share(common, id).ok_or(Error::NotFound)?;
        sys::range_map(Handle::SELF_RANGE, PLACE, segment, 0, 1, protection::READ | protection::WRITE)?;
        // SAFETY: mapped above, one page, and used as atomics only by all who know it.
        let words: &[AtomicU64; 512] = unsafe { &*(PLACE as *const _) };
        words[self.core as usize].store(self.core + id, Ordering::Release);
        self.line(WRITTEN).fetch_add(1, Ordering::AcqRel);
        self.meet();
        let seen = (0..self.cores).all(|core| words[core as usize].load(Ordering::Acquire) == core + id);
        let named = sys::object_name(segment)?.0 == NAME;
        self.meet();
        if self.core == 0 {
            sys::share_remove(common, id)?;
        }
        self.meet();
        let gone = sys::object_name(segment) == Err(Error::BadHandle);
        // The mapping has kept it.
        let kept = words[0].load(Ordering::Acquire) == id;
        // SAFETY: `words` is not used any more.
        unsafe { sys::range_unmap(Handle::SELF_RANGE, PLACE, 1) }?;
        Ok(seen && named && gone && kept)
    }

    fn prepare(&mut self, common: Handle) -> Result<(), Error> {
        let (own, _) = sys::share_pool_alloc(Handle::SELF_RAM, OWN_PAGES, lock::SPIN, [0; 2])?;
        let (inner, _) = sys::share_alloc(own, lock::SPIN, [0; 2])?;
        let (object, id) = made(own)?;
        let inner = sys::share_add(Handle::NONE, inner, ALL)?;
        self.objects.own = Named { share: Some(inner), object: Some(object), id };
        let rights = Rights::READ.union(Rights::WRITE).union(Rights::GRANT);
        let (object, id) = made(common)?;
        for (place, (kind, _)) in (0..).zip(KINDS) {
            if self.core == 0 {
                self.post(SHARES + place, sys::share_alloc(common, kind, [0; 2])?.1);
            }
            self.meet();
            let handle = Handle::in_share(common, self.read(SHARES + place)).ok_or(Error::NotFound)?;
            let share = sys::share_add(Handle::NONE, handle, rights)?;
            self.objects.global[place as usize] = Named { share: Some(share), object: Some(object), id };
        }
        Ok(())
    }

    fn all_rows(&mut self) {
        self.row("share-add-remove/root", TURNS, 0, |room: &Room| room.objects.count(room.objects.turn_root()));
        self.row("share-add-remove/own", TURNS, 0, |room: &Room| room.objects.count(room.objects.own.turn()));
        let operations: [fn(&Room); KINDS.len()] = [
            |room| room.objects.turn_global(0),
            |room| room.objects.turn_global(1),
            |room| room.objects.turn_global(2),
            |room| room.objects.turn_global(3),
        ];
        for ((_, name), operation) in KINDS.into_iter().zip(operations) {
            self.row(name, TURNS, 0, operation);
        }
    }

    /// How often each lock was taken and waited for, and that nothing is left in the shares.
    fn report(&mut self) -> Result<(), Error> {
        let own = self.objects.own.share.ok_or(Error::NotFound).and_then(sys::share_stat)?;
        if own[0] != 0 || own[1] == 0 || own[2] != 0 {
            runtime::log!(
                "load failed: an own share has {} objects, its lock {} takers, {} of whom waited",
                own[0],
                own[1],
                own[2]
            );
        }
        let refused = self.objects.refused.get();
        if refused != 0 {
            runtime::log!("load failed: {refused} names were refused");
        }
        self.meet();
        if self.core > 0 {
            return Ok(());
        }
        for (named, (_, name)) in self.objects.global.iter().zip(KINDS) {
            let [objects, takes, waits] = named.share.ok_or(Error::NotFound).and_then(sys::share_stat)?;
            runtime::log!("{name}: {objects} objects left, lock taken {takes} times, {waits} waits");
        }
        Ok(())
    }
}

/// All rows of shares. A core that is refused something says so and stays away, so that the others'
/// wait is noticed.
pub(super) fn rows(room: &mut Room, start: &Start) {
    let Some(common) = start.pool(POOL) else { return runtime::log!("load failed: the pool {POOL} is missing") };
    match room.check_sharing(common) {
        Ok(true) if room.core == 0 => runtime::log!("shared: {} cores see one segment", room.cores),
        Ok(true) => (),
        Ok(false) => runtime::log!("load failed: a core does not see what others wrote to a shared segment"),
        Err(error) => return runtime::log!("load failed: sharing a segment is refused with {error:?}"),
    }
    if let Err(error) = room.prepare(common) {
        return runtime::log!("load failed: making shares is refused with {error:?}");
    }
    room.all_rows();
    if let Err(error) = room.report() {
        runtime::log!("load failed: ShareStat is refused with {error:?}");
    }
}
