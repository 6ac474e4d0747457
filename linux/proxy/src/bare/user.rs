//! The program's memory as the proxy reaches it: directly, but only after the memory map said that
//! it is there.
//!
//! A fault while the proxy runs would end the domain, so every pointer of the program passes
//! through here and a bad one gives EFAULT. The map is the proxy's own account of what it mapped;
//! pages that are mapped but not present yet appear by themselves. While a call waits, another
//! thread may change the map. So bytes of the program are there only within a closure, which can
//! neither wait nor keep them ([`with_bytes`]); what is kept across an await is where they are
//! ([`Target`], [`Source`]), and each use looks at the map again.

use abi::Handle;
use alloc::string::String;
use alloc::vec::Vec;
use core::slice;

use personality::Errno;
use personality::memory::{Area, PAGE, STATE_BASE, protection};
use personality::signals::{Signals, ThreadSignals};
use personality::state::{ProcessState, StateBlock, ThreadState};
use system::file_name;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{paging, threads};

fn block() -> *mut StateBlock {
    STATE_BASE as *mut StateBlock
}

/// Works on the process state. `work` must not call `with_state` again.
pub fn with_state<T>(work: impl FnOnce(&mut ProcessState) -> T) -> T {
    // SAFETY: the segment is mapped there before the first use and stays; one context, and no use
    // is nested or crosses an await.
    work(unsafe { &mut (*block()).process })
}

/// Works on the process state and the thread that the proxy works for. `work` must not call this or
/// its relatives again.
pub fn with_both<T>(work: impl FnOnce(&mut ProcessState, &mut ThreadState) -> T) -> T {
    // SAFETY: as for `with_state`; the thread lives as long as it is the current one, and lies
    // outside of the process's part of the block.
    work(unsafe { &mut (*block()).process }, unsafe { &mut *threads::current_state() })
}

/// Works on the thread that the proxy works for. As for [`with_both`].
pub fn with_thread<T>(work: impl FnOnce(&mut ThreadState) -> T) -> T {
    with_both(|_, thread| work(thread))
}

/// Works on the signals of the process and of the thread. As for [`with_both`].
pub fn with_signals<T>(work: impl FnOnce(&mut Signals, &mut ThreadSignals) -> T) -> T {
    with_both(|state, thread| work(&mut state.signals, &mut thread.signals))
}

/// Works on all of the state, before there are threads or while only one lives. As for
/// [`with_both`].
pub fn with_block<T>(work: impl FnOnce(&mut StateBlock) -> T) -> T {
    // SAFETY: as for `with_state`.
    work(unsafe { &mut *block() })
}

/// The process's first thread, where a forked child finds the one that forked.
pub fn first_thread() -> *mut ThreadState {
    // SAFETY: the address of a field; nothing is read.
    unsafe { &raw mut (*block()).first }
}

fn check(address: u64, bytes: u64, needs: u32) -> Result<(), Errno> {
    if with_state(|state| state.memory.allows(address, bytes, needs)) {
        return Ok(());
    }
    paging::note(address, bytes, needs);
    Err(Errno::EFAULT)
}

/// Fills pages that the table has as paged in, and maps them. `ENOMEM`.
pub fn put_pages(area: &Area, bytes: &[u8]) -> Result<(), Errno> {
    let (segment, access) = (Handle(area.segment), protection::READ | protection::WRITE);
    sys::range_map(Handle::SELF_RANGE, area.start, segment, area.first_page, area.pages(), access.into())
        .map_err(|_| Errno::ENOMEM)?;
    assert!(bytes.len() as u64 == area.end - area.start, "pages are filled in part");
    // SAFETY: mapped writable just now; nobody else has a slice of what was not there.
    unsafe { slice::from_raw_parts_mut(area.start as *mut u8, bytes.len()) }.copy_from_slice(bytes);
    // SAFETY: the program's own memory; the proxy reaches it only as the table allows.
    unsafe { sys::range_protect(Handle::SELF_RANGE, area.start, area.pages(), area.access().into()) }
        .map_err(|_| Errno::ENOMEM)
}

/// Is there memory of the program that can be read? `EFAULT`.
pub fn check_readable(address: u64, count: u64) -> Result<(), Errno> {
    if count == 0 { Ok(()) } else { check(address, count, protection::READ) }
}

/// Is there memory of the program that can be written? `EFAULT`.
pub fn check_writable(address: u64, count: u64) -> Result<(), Errno> {
    if count == 0 { Ok(()) } else { check(address, count, protection::READ | protection::WRITE) }
}

/// Unmaps pages that the table has as paged out, and frees them.
pub fn take_pages(area: &Area) {
    // SAFETY: the table does not allow the program, and so nobody here, what lies there; it can be
    // read from its file again.
    unsafe {
        let _ = sys::range_unmap(Handle::SELF_RANGE, area.start, area.pages());
        let _ = sys::segment_discard(Handle(area.segment), area.first_page, area.pages());
    }
}

/// Works on bytes of the program, which are there for as long as `work` takes. `EFAULT`.
pub fn with_bytes<T>(address: u64, count: u64, work: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
    check_readable(address, count)?;
    if count == 0 {
        return Ok(work(&[]));
    }
    // SAFETY: mapped readable, and mapped so until the program runs again or a call changes the
    // map: `work` cannot wait for either, and what it is given does not outlive it.
    Ok(work(unsafe { slice::from_raw_parts(address as *const u8, count as usize) }))
}

/// Works on bytes of the program that it may change. As for [`with_bytes`].
pub fn with_bytes_mut<T>(address: u64, count: u64, work: impl FnOnce(&mut [u8]) -> T) -> Result<T, Errno> {
    check_writable(address, count)?;
    if count == 0 {
        return Ok(work(&mut []));
    }
    // SAFETY: as for `with_bytes`, and mapped writable; who works on other bytes meanwhile, within
    // `work`, has only these.
    Ok(work(unsafe { slice::from_raw_parts_mut(address as *mut u8, count as usize) }))
}

/// A copy of bytes of the program. `EFAULT`.
pub fn copy_in(address: u64, count: u64) -> Result<Vec<u8>, Errno> {
    with_bytes(address, count, <[u8]>::to_vec)
}

/// Copies bytes to the program. `EFAULT`.
pub fn copy_out(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    with_bytes_mut(address, bytes.len() as u64, |place| place.copy_from_slice(bytes))
}

/// A value.
pub fn read<T: FromBytes + Immutable>(address: u64) -> Result<T, Errno> {
    with_bytes(address, size_of::<T>() as u64, |bytes| T::read_from_bytes(bytes).map_err(|_| Errno::EFAULT))?
}

/// A value.
pub fn write<T: IntoBytes + Immutable + ?Sized>(address: u64, value: &T) -> Result<(), Errno> {
    copy_out(address, value.as_bytes())
}

/// A value where the program may have passed a null pointer.
pub fn read_if<T: FromBytes + Immutable>(address: u64) -> Result<Option<T>, Errno> {
    if address == 0 { Ok(None) } else { read(address).map(Some) }
}

/// As [`write`], nowhere for a null pointer.
pub fn write_if<T: IntoBytes + Immutable + ?Sized>(address: u64, value: &T) -> Result<(), Errno> {
    if address == 0 { Ok(()) } else { write(address, value) }
}

/// Bytes up to a zero, which must come within `limit`; `too_long` otherwise.
pub fn text_bytes(address: u64, limit: u64, too_long: Errno) -> Result<Vec<u8>, Errno> {
    let reach = with_state(|state| state.memory.extent(address, limit.max(PAGE), protection::READ)).min(limit);
    let found = with_bytes(address, reach, |all| match all.iter().position(|byte| *byte == 0) {
        Some(end) => Ok(all[..end].to_vec()),
        None if reach < limit => Err(Errno::EFAULT),
        None => Err(too_long),
    })?;
    if found == Err(Errno::EFAULT) {
        paging::note(address + reach, 1, protection::READ);
    }
    found
}

/// A path, as text.
pub fn path(address: u64) -> Result<String, Errno> {
    const LIMIT: u64 = 4096;
    Ok(file_name::to_text(&text_bytes(address, LIMIT, Errno::ENAMETOOLONG)?))
}

/// An array of texts that ends with a null pointer; `limit` bytes in all. `E2BIG`.
pub fn text_array(mut address: u64, mut limit: usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut all = Vec::new();
    while address != 0 {
        let pointer: u64 = read(address)?;
        if pointer == 0 {
            break;
        }
        let text = text_bytes(pointer, limit as u64, Errno::E2BIG)?;
        limit = limit.checked_sub(text.len() + 9).ok_or(Errno::E2BIG)?;
        all.push(text);
        address = address.checked_add(8).ok_or(Errno::EFAULT)?;
    }
    Ok(all)
}

/// Where the bytes of an answer go: memory of the program, looked at when they are there, or the
/// proxy's own.
pub enum Target<'a> {
    /// Address and length; may go away while the answer is awaited.
    Program(u64, u64),
    /// The proxy's.
    Own(&'a mut [u8]),
}

impl Target<'_> {
    /// Of the program. `EFAULT` if it is not there now.
    pub fn program(address: u64, count: u64) -> Result<Target<'static>, Errno> {
        check_writable(address, count)?;
        Ok(Target::Program(address, count))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Target::Program(_, count) => *count as usize,
            Target::Own(bytes) => bytes.len(),
        }
    }

    /// What is left after the first `done` bytes.
    pub fn rest(&mut self, done: usize) -> Target<'_> {
        match self {
            Target::Program(address, count) => Target::Program(*address + done as u64, *count - done as u64),
            Target::Own(bytes) => Target::Own(&mut bytes[done..]),
        }
    }

    /// Works on the first bytes. `EFAULT`.
    pub fn with_first<T>(&mut self, count: usize, work: impl FnOnce(&mut [u8]) -> T) -> Result<T, Errno> {
        match self {
            Target::Program(address, _) => with_bytes_mut(*address, count as u64, work),
            Target::Own(bytes) => Ok(work(&mut bytes[..count])),
        }
    }

    /// Stores the first bytes. `EFAULT`.
    pub fn put(&mut self, first: &[u8]) -> Result<(), Errno> {
        self.with_first(first.len(), |place| place.copy_from_slice(first))
    }
}

/// Where the bytes of a request come from. See [`Target`].
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Address and length; may go away while an answer is awaited.
    Program(u64, u64),
    /// The proxy's.
    Own(&'a [u8]),
}

impl Source<'_> {
    /// Of the program. `EFAULT` if it is not there now.
    pub fn program(address: u64, count: u64) -> Result<Source<'static>, Errno> {
        check_readable(address, count)?;
        Ok(Source::Program(address, count))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Source::Program(_, count) => *count as usize,
            Source::Own(bytes) => bytes.len(),
        }
    }

    /// Works on a part. `EFAULT`.
    pub fn with_part<T>(&self, from: usize, to: usize, work: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
        match self {
            Source::Program(address, _) => with_bytes(*address + from as u64, (to - from) as u64, work),
            Source::Own(bytes) => Ok(work(&bytes[from..to])),
        }
    }
}
