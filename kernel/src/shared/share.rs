//! A shared share: a table from ids to objects of its pool (Corey section 3.3), changed under its
//! lock, read without.

use super::object::SharedObject;
use super::{SpinWait, registry};
use crate::steps::Budget;
use abi::{Error, Rights};
use lock::{Entry, Ordering, Stat, Table};

/// Lines of a share's buckets: 256 chains.
pub(super) const BUCKET_LINES: u64 = 32;
/// Most entries, so that a chain stays short.
pub const ENTRIES_MAX: u64 = abi::layout::SHARE_SLOTS_MAX;

fn table(share: SharedObject) -> Table<'static> {
    Table::new(share.pool.lines(share.behind_lock(), BUCKET_LINES as usize))
}

/// What `id` names in `share`, with a reference that the caller releases, and with what rights.
pub(super) fn find(share: SharedObject, id: u64) -> Result<(SharedObject, Rights), Error> {
    let section = registry::reader().enter();
    let entry = table(share).find(&share.pool, id, &section).ok_or(Error::BadHandle)?;
    let object = SharedObject { pool: share.pool, place: entry.object };
    object.retain();
    drop(section);
    Ok((object, Rights(entry.rights as u32)))
}

/// Makes `object` known in `share`. `Busy`: it is.
#[inline]
pub(super) fn insert(share: SharedObject, core: usize, object: SharedObject, rights: Rights) -> Result<(), Error> {
    let _held = share.lock().write::<SpinWait>(core);
    let (table, id, entries) = (table(share), object.id(), share.entries().load(Ordering::Relaxed));
    if entries >= ENTRIES_MAX {
        return Err(Error::NoSlot);
    }
    if table.knows(&share.pool, id) {
        return Err(Error::Busy);
    }
    let place = share.take_line(core)?;
    // Before it can be found: who finds it may drop its name again at once.
    object.retain();
    table.insert(&share.pool, place, Entry { id, object: object.place, rights: rights.0.into() });
    share.entries().store(entries + 1, Ordering::Relaxed);
    Ok(())
}

/// Takes `id` out of `share`. The object goes if that was its last name.
#[inline]
pub(super) fn remove(share: SharedObject, core: usize, id: u64) -> Result<(), Error> {
    let (object, place) = {
        let _held = share.lock().write::<SpinWait>(core);
        let removed = table(share).remove(&share.pool, id).ok_or(Error::NotFound)?;
        debug_assert!(share.entries().load(Ordering::Relaxed) > 0, "more entries go than came");
        share.entries().store(share.entries().load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        removed
    };
    // Nobody finds it any more; who is about to take a reference of what he found does so first.
    share.pool.wait_for_readers();
    share.free_line(place);
    SharedObject { pool: share.pool, place: object }.release(core);
    Ok(())
}

/// Entries, and what its lock has counted.
pub(super) fn stat(share: SharedObject) -> (u64, Stat) {
    (share.entries().load(Ordering::Relaxed), share.lock().stat())
}

/// Drops the entries of a share that nobody names, so that nobody can be looking either. Tells
/// whether the budget sufficed.
pub(super) fn empty(share: SharedObject, budget: &mut Budget) -> bool {
    let object = |place| SharedObject { pool: share.pool, place };
    table(share).drain(&share.pool, |place| budget.spend(1).then(|| object(place).release_later()).is_some())
}
