//! Shared shares, and what lies in them.

use super::{Outcome, call};
use abi::{Call, Error, Handle, Rights};

/// `ShareAlloc` with no parent: a pool of so many pages of `ram`, and its first share with its id.
/// `lock` is one of `abi::layout::lock`.
pub fn share_pool_alloc(ram: Handle, pages: u64, lock: u64, name: [u64; 2]) -> Outcome<(Handle, u64)> {
    // SAFETY: makes objects; nothing is mapped.
    let results = unsafe { call(Call::ShareAlloc, [0, ram.0, pages, lock, name[0], name[1]]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `ShareAlloc` in a share: the new share's handle there, and its id.
pub fn share_alloc(parent: Handle, lock: u64, name: [u64; 2]) -> Outcome<(Handle, u64)> {
    if parent == Handle::NONE {
        return Err(Error::BadHandle);
    }
    // SAFETY: as above.
    let results = unsafe { call(Call::ShareAlloc, [parent.0, 0, 0, lock, name[0], name[1]]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `ShareAdd`: makes `object` known in `share`, or for `Handle::NONE` in the caller's root share.
pub fn share_add(share: Handle, object: Handle, rights: Rights) -> Outcome<Handle> {
    // SAFETY: only adds a name.
    let results = unsafe { call(Call::ShareAdd, [share.0, object.0, rights.0.into(), 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `ShareRemove`: takes the object of that id out of `share`.
pub fn share_remove(share: Handle, id: u64) -> Outcome<()> {
    // SAFETY: what is mapped stays mapped.
    unsafe { call(Call::ShareRemove, [share.0, id, 0, 0, 0, 0]) }.map(drop)
}

/// `ShareStat`: objects known in it, times its lock was taken, times somebody waited for it.
pub fn share_stat(share: Handle) -> Outcome<[u64; 3]> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::ShareStat, [share.0, 0, 0, 0, 0, 0]) }?;
    Ok([results.words[0], results.words[1], results.words[2]])
}

/// `SharePool`: the pool's id, for [`share_import`] on another core.
pub fn share_pool(pcore: Handle, share: Handle) -> Outcome<u64> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::SharePool, [pcore.0, share.0, 0, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `ShareImport`: a name for the first share of the pool with this id.
pub fn share_import(pcore: Handle, ram: Handle, pool: u64) -> Outcome<Handle> {
    // SAFETY: only adds a name.
    let results = unsafe { call(Call::ShareImport, [pcore.0, ram.0, pool, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `ShareSegment`: a segment in the pool of `share`, known there: its handle and id. `flags` is 0,
/// or `abi::layout::segment::CONTIGUOUS`.
pub fn share_segment(share: Handle, pages: u64, name: [u64; 2], flags: u64) -> Outcome<(Handle, u64)> {
    // SAFETY: makes an object; to be seen it must be mapped.
    let results = unsafe { call(Call::ShareSegment, [share.0, pages, name[0], name[1], flags, 0]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `ShareCopy`: a segment in the pool of `share`, known there, that shares its pages with `segment`
/// until either is written: its handle and id.
pub fn share_copy(share: Handle, segment: Handle, name: [u64; 2]) -> Outcome<(Handle, u64)> {
    // SAFETY: makes an object; what is mapped shows the same bytes as before.
    let results = unsafe { call(Call::ShareCopy, [share.0, segment.0, name[0], name[1], 0, 0]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `ObjectName`: the name a shared object was given, and its references.
pub fn object_name(object: Handle) -> Outcome<([u64; 2], u64)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::ObjectName, [object.0, 0, 0, 0, 0, 0]) }?;
    Ok(([results.words[0], results.words[1]], results.words[2]))
}

/// `ShareRange`: a range in the pool of `share`, known there: its handle, its id and its pages.
/// `lock` is one of `abi::layout::lock`.
pub fn share_range(share: Handle, pages: u64, lock: u64, name: [u64; 2], flags: u64) -> Outcome<(Handle, u64, u64)> {
    // SAFETY: makes an object; to be seen it must be nested.
    let results = unsafe { call(Call::ShareRange, [share.0, pages, lock, name[0], name[1], flags]) }?;
    Ok((Handle(results.words[0]), results.words[1], results.words[2]))
}

/// `RangeStat`: what a shared range has counted; `what` is one of `abi::layout::range_stat`.
pub fn range_stat(range: Handle, what: u64) -> Outcome<[u64; 3]> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::RangeStat, [range.0, what, 0, 0, 0, 0]) }?;
    Ok([results.words[0], results.words[1], results.words[2]])
}
