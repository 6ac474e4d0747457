//! The program's memory as the proxy reaches it: directly, but only after the memory map said that
//! it is there.
//!
//! A fault while the proxy runs would end the domain, so every pointer of the program passes
//! through here and a bad one gives EFAULT. The map is the proxy's own account of what it mapped;
//! pages that are mapped but not present yet appear by themselves. While a call waits, another
//! thread may change the map: slices are not kept across an await, [`Target`] and [`Source`] are.

use alloc::string::String;
use alloc::vec::Vec;
use core::slice;

use personality::Errno;
use personality::memory::{PAGE, STATE_BASE, protection};
use personality::signals::{Signals, ThreadSignals};
use personality::state::{ProcessState, StateBlock, ThreadState};
use system::file_name;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::threads;

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
    if with_state(|state| state.memory.allows(address, bytes, needs)) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Bytes of the program to read from. Valid until the program runs again or its map changes.
pub fn bytes(address: u64, count: u64) -> Result<&'static [u8], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    check(address, count, protection::READ)?;
    // SAFETY: mapped readable; the program does not run while the proxy does.
    Ok(unsafe { slice::from_raw_parts(address as *const u8, count as usize) })
}

/// Bytes of the program to write to.
pub fn bytes_mut(address: u64, count: u64) -> Result<&'static mut [u8], Errno> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(address, count, protection::READ | protection::WRITE)?;
    // SAFETY: mapped writable; the program does not run while the proxy does, and no two such
    // slices are kept at once.
    Ok(unsafe { slice::from_raw_parts_mut(address as *mut u8, count as usize) })
}

/// A value.
pub fn read<T: FromBytes + Immutable>(address: u64) -> Result<T, Errno> {
    T::read_from_bytes(bytes(address, size_of::<T>() as u64)?).map_err(|_| Errno::EFAULT)
}

/// A value.
pub fn write<T: IntoBytes + Immutable + ?Sized>(address: u64, value: &T) -> Result<(), Errno> {
    let value = value.as_bytes();
    bytes_mut(address, value.len() as u64)?.copy_from_slice(value);
    Ok(())
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
    let all = bytes(address, reach)?;
    match all.iter().position(|byte| *byte == 0) {
        Some(end) => Ok(all[..end].to_vec()),
        None if reach < limit => Err(Errno::EFAULT),
        None => Err(too_long),
    }
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
        bytes_mut(address, count)?;
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

    /// The first bytes, to write at once. `EFAULT`.
    pub fn first(&mut self, count: usize) -> Result<&mut [u8], Errno> {
        match self {
            Target::Program(address, _) => bytes_mut(*address, count as u64),
            Target::Own(bytes) => Ok(&mut bytes[..count]),
        }
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
        bytes(address, count)?;
        Ok(Source::Program(address, count))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Source::Program(_, count) => *count as usize,
            Source::Own(bytes) => bytes.len(),
        }
    }

    /// A part, to read at once. `EFAULT`.
    pub fn part(&self, from: usize, to: usize) -> Result<&[u8], Errno> {
        match self {
            Source::Program(address, _) => bytes(*address + from as u64, (to - from) as u64),
            Source::Own(bytes) => Ok(&bytes[from..to]),
        }
    }
}
