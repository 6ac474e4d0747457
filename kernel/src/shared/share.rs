//! A shared share: a table from ids to objects of its pool (Corey section 3.3), changed under its lock, read without.

use super::object::Object;
use super::pool::wait_for_readers;
use super::{Patience, registry};
use abi::{Error, Rights};
use lock::{Entry, Ordering, Place, Stat, Table};

/// Lines of a share's buckets: 256 chains.
pub(super) const BUCKET_LINES: u64 = 32;
/// Most entries, so that a chain stays short.
pub const ENTRIES_MAX: u64 = abi::layout::SHARE_SLOTS_MAX;

fn table(share: Object) -> Table<'static> {
    Table::new(share.pool.lines(share.behind_lock(), BUCKET_LINES as usize))
}

/// What `id` names in `share`, with a reference that the caller gives back, and with what rights.
pub(super) fn find(share: Object, id: u64) -> Result<(Object, Rights), Error> {
    let section = registry::reader().enter();
    let entry = table(share).find(&share.pool, id, &section).ok_or(Error::BadHandle)?;
    let object = Object { pool: share.pool, place: entry.object };
    object.retain();
    drop(section);
    Ok((object, Rights(entry.rights as u32)))
}

/// Makes `object` known in `share`. `Busy`: it is.
pub(super) fn insert(share: Object, core: usize, object: Object, rights: Rights) -> Result<(), Error> {
    let place = share.pool.allocate_line(core)?;
    let entry = Entry { id: object.id(), object: object.place, rights: u64::from(rights.0) };
    let inserted = {
        let _held = share.lock().write::<Patience>(core);
        let entries = share.entries().load(Ordering::Relaxed);
        if entries >= ENTRIES_MAX {
            Err(Error::NoSlot)
        } else {
            // Before it can be found: who finds it may drop its name again at once.
            object.retain();
            let is_new = table(share).insert(&share.pool, place, entry);
            share.entries().store(entries + u64::from(is_new), Ordering::Relaxed);
            if is_new { Ok(()) } else { Err(Error::Busy) }
        }
    };
    match inserted {
        Ok(()) => (),
        Err(Error::Busy) => {
            object.release(core);
            share.pool.free_line(core, place);
        }
        Err(_) => share.pool.free_line(core, place),
    }
    inserted
}

/// Takes `id` out of `share`. The object goes if that was its last name.
pub(super) fn remove(share: Object, core: usize, id: u64) -> Result<(), Error> {
    let (entry, place) = {
        let _held = share.lock().write::<Patience>(core);
        let removed = table(share).remove(&share.pool, id).ok_or(Error::NotFound)?;
        share.entries().store(share.entries().load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        removed
    };
    // Nobody finds it any more; who is about to take a reference of what he found does so first.
    wait_for_readers();
    share.pool.free_line(core, place);
    Object { pool: share.pool, place: entry.object }.release(core);
    Ok(())
}

/// Entries, and what its lock has counted.
pub(super) fn stat(share: Object) -> (u64, Stat) {
    (share.entries().load(Ordering::Relaxed), share.lock().stat())
}

/// Drops all entries of a share that nobody names: so nobody can be looking either.
pub(super) fn empty(share: Object, core: usize, doomed: &mut Place) {
    table(share).drain(&share.pool, |entry, place| {
        share.pool.free_line(core, place);
        Object { pool: share.pool, place: entry.object }.drop_reference(doomed);
    });
}
