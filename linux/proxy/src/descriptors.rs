//! Descriptor numbers and the open descriptions they name.
//!
//! Invariants: a description's count equals the descriptors (and nothing else) that name it; a free
//! description has count 0. Plain data: part of the state a forked child inherits. What a
//! description *is* lives at its server.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Most descriptors of a process, whatever RLIMIT_NOFILE it sets.
pub const DESCRIPTORS_MAX: usize = 1024;

/// Which server holds a description. Values of [`Description::server`].
pub mod server {
    /// The file server.
    pub const FS: u32 = 1;
    /// Pipes, at the process server.
    pub const PROCESS: u32 = 2;
    /// The terminal.
    pub const CONSOLE: u32 = 3;
    /// Sockets.
    pub const TCP: u32 = 4;
    /// An epoll set, here in the proxy; `id` is its number.
    pub const EPOLL: u32 = 5;
    /// A signalfd, here in the proxy; `cookie` is its set of signals.
    pub const SIGNALS: u32 = 6;
}

/// An open description as this process knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Description {
    /// Its id at the server.
    pub id: u64,
    /// `server::*`.
    pub server: u32,
    /// Descriptors that name it.
    pub count: u32,
    /// O_ACCMODE, O_APPEND and O_NONBLOCK, or O_PATH, as fcntl gives them.
    pub flags: u32,
    /// S_IFMT bits of what it is.
    pub kind: u32,
    /// Where getdents64 goes on; the set of a signalfd.
    pub cookie: u64,
    /// How long a read or accept, and a write or connect, may wait (SO_RCVTIMEO, SO_SNDTIMEO); 0 =
    /// for ever.
    pub receive_limit_ns: u64,
    /// See `receive_limit_ns`.
    pub send_limit_ns: u64,
}

/// What a closed number named, and whether it was the last that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// As it is now.
    pub description: Description,
    /// Nothing names it any more.
    pub is_last: bool,
}

/// The table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Descriptors {
    /// Index of the description plus 1; 0 = closed.
    slots: [u16; DESCRIPTORS_MAX],
    close_on_exec: [u8; DESCRIPTORS_MAX],
    /// New numbers are below this (RLIMIT_NOFILE); what is open stays open.
    end: u64,
    descriptions: [Description; DESCRIPTORS_MAX],
}

impl Default for Descriptors {
    fn default() -> Self {
        Descriptors {
            slots: [0; DESCRIPTORS_MAX],
            close_on_exec: [0; DESCRIPTORS_MAX],
            end: DESCRIPTORS_MAX as u64,
            descriptions: [Description::default(); DESCRIPTORS_MAX],
        }
    }
}

impl Descriptors {
    fn index(&self, descriptor: u64) -> Result<usize, Errno> {
        // Linux takes the low 32 bits as a signed number.
        let slot = *self.slots.get(descriptor as u32 as usize).ok_or(Errno::EBADF)?;
        let index = usize::from(slot).checked_sub(1).ok_or(Errno::EBADF)?;
        if index < DESCRIPTORS_MAX { Ok(index) } else { Err(Errno::EBADF) }
    }

    /// Numbers that may be given from now on: those below.
    pub fn set_end(&mut self, end: u64) {
        self.end = end.min(DESCRIPTORS_MAX as u64);
    }

    /// Which numbers may be given: those below.
    pub fn end(&self) -> u64 {
        self.end.min(DESCRIPTORS_MAX as u64)
    }

    /// What a descriptor names. `EBADF`.
    pub fn get(&self, descriptor: u64) -> Result<&Description, Errno> {
        Ok(&self.descriptions[self.index(descriptor)?])
    }

    /// The same, to change.
    pub fn get_mut(&mut self, descriptor: u64) -> Result<&mut Description, Errno> {
        let index = self.index(descriptor)?;
        Ok(&mut self.descriptions[index])
    }

    /// A number for this description at its server, if there is one already.
    pub fn find(&self, server: u32, id: u64) -> Option<u64> {
        let of_it = |entry: &Description| entry.count > 0 && entry.server == server && entry.id == id;
        let index = self.descriptions.iter().position(of_it)?;
        self.slots.iter().position(|slot| usize::from(*slot) == index + 1).map(|slot| slot as u64)
    }

    fn lowest(&self, from: u64) -> Result<usize, Errno> {
        let free = (from..self.end()).find(|slot| self.slots[*slot as usize] == 0);
        free.map(|slot| slot as usize).ok_or(Errno::EMFILE)
    }

    /// Is there room for `count` more?
    pub fn room(&self, count: usize) -> Result<(), Errno> {
        let below = &self.slots[..self.end() as usize];
        if below.iter().filter(|slot| **slot == 0).count() >= count { Ok(()) } else { Err(Errno::EMFILE) }
    }

    /// A new description under the lowest free number. `EMFILE`.
    pub fn add(&mut self, description: Description, close_on_exec: bool) -> Result<u64, Errno> {
        let slot = self.lowest(0)?;
        let index = self.descriptions.iter().position(|entry| entry.count == 0).ok_or(Errno::EMFILE)?;
        self.descriptions[index] = Description { count: 1, ..description };
        self.slots[slot] = index as u16 + 1;
        self.close_on_exec[slot] = close_on_exec.into();
        Ok(slot as u64)
    }

    /// A second number, at least `from`. `EBADF`, `EMFILE`, `EINVAL` past the limit.
    pub fn duplicate(&mut self, descriptor: u64, from: u64, close_on_exec: bool) -> Result<u64, Errno> {
        let index = self.index(descriptor)?;
        if from >= self.end() {
            return Err(Errno::EINVAL);
        }
        let slot = self.lowest(from)?;
        self.put(slot, index, close_on_exec);
        Ok(slot as u64)
    }

    /// A second number `to`; gives what that named before. `EBADF`, past the limit too.
    pub fn duplicate_to(&mut self, descriptor: u64, to: u64, close_on_exec: bool) -> Result<Option<Closed>, Errno> {
        let index = self.index(descriptor)?;
        let slot = to as u32 as usize;
        if slot as u64 >= self.end() {
            return Err(Errno::EBADF);
        }
        let lost = self.close(to).ok();
        self.put(slot, index, close_on_exec);
        Ok(lost)
    }

    fn put(&mut self, slot: usize, index: usize, close_on_exec: bool) {
        self.slots[slot] = index as u16 + 1;
        self.close_on_exec[slot] = close_on_exec.into();
        self.descriptions[index].count += 1;
    }

    /// Closes a number. `EBADF`.
    pub fn close(&mut self, descriptor: u64) -> Result<Closed, Errno> {
        let index = self.index(descriptor)?;
        self.slots[descriptor as u32 as usize] = 0;
        let description = &mut self.descriptions[index];
        description.count = description.count.saturating_sub(1);
        Ok(Closed { description: *description, is_last: description.count == 0 })
    }

    /// The close-on-exec flag.
    pub fn close_on_exec(&self, descriptor: u64) -> Result<bool, Errno> {
        self.index(descriptor).map(|_| self.close_on_exec[descriptor as u32 as usize] != 0)
    }

    /// Sets it.
    pub fn set_close_on_exec(&mut self, descriptor: u64, on: bool) -> Result<(), Errno> {
        self.index(descriptor)?;
        self.close_on_exec[descriptor as u32 as usize] = on.into();
        Ok(())
    }

    /// Open numbers that exec closes.
    pub fn next_to_close_at_exec(&self) -> Option<u64> {
        (0..DESCRIPTORS_MAX)
            .find(|slot| self.slots[*slot] != 0 && self.close_on_exec[*slot] != 0)
            .map(|slot| slot as u64)
    }

    /// Does any description live at this server? (Which servers a fork has to tell.)
    pub fn uses(&self, server: u32) -> bool {
        self.descriptions.iter().any(|entry| entry.count > 0 && entry.server == server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(id: u64) -> Description {
        Description { id, server: server::PROCESS, ..Description::default() }
    }

    #[test]
    fn numbers_are_lowest_first_and_counted() {
        let mut table = Descriptors::default();
        assert_eq!(table.add(pipe(7), false), Ok(0));
        assert_eq!(table.add(pipe(8), true), Ok(1));
        assert_eq!(table.duplicate(0, 0, false), Ok(2));
        assert_eq!(table.duplicate_to(0, 1, false).unwrap().unwrap().description.id, 8);
        assert!(!table.close(0).unwrap().is_last);
        assert_eq!((table.find(server::PROCESS, 7), table.find(server::PROCESS, 8)), (Some(1), None));
        assert_eq!(table.find(server::FS, 7), None);
        assert!(!table.close(1).unwrap().is_last);
        assert!(table.uses(server::PROCESS));
        assert_eq!(table.close(2).map(|lost| (lost.description.id, lost.is_last)), Ok((7, true)));
        assert!(!table.uses(server::PROCESS));
        for bad in [0, 255, 1023, 1024, u64::MAX, 1 << 40] {
            assert_eq!(table.get(bad).err(), Some(Errno::EBADF));
        }
    }

    #[test]
    fn the_limit_is_an_error() {
        let mut table = Descriptors::default();
        (0..DESCRIPTORS_MAX).for_each(|number| assert_eq!(table.add(pipe(1), true), Ok(number as u64)));
        assert_eq!(table.add(pipe(1), false), Err(Errno::EMFILE));
        assert_eq!(table.duplicate(0, 0, false), Err(Errno::EMFILE));
        assert_eq!(table.duplicate(0, 4000, false), Err(Errno::EINVAL));
        assert_eq!(table.room(1), Err(Errno::EMFILE));
        while let Some(number) = table.next_to_close_at_exec() {
            assert!(table.close(number).unwrap().is_last);
        }
        assert!(!table.uses(server::PROCESS));
    }

    #[test]
    fn a_lower_limit_holds_for_new_numbers() {
        let mut table = Descriptors::default();
        (0..6).for_each(|number| assert_eq!(table.add(pipe(1), false), Ok(number)));
        table.set_end(4);
        assert_eq!(table.add(pipe(1), false), Err(Errno::EMFILE));
        assert_eq!(table.duplicate(5, 0, false), Err(Errno::EMFILE));
        assert_eq!(table.duplicate(5, 4, false), Err(Errno::EINVAL));
        assert_eq!(table.duplicate_to(0, 4, false), Err(Errno::EBADF));
        // What is open stays, also above the limit; what is closed below it is free.
        assert!(table.get(5).is_ok() && table.set_close_on_exec(5, true).is_ok());
        assert!(table.close(5).is_ok() && table.close(1).is_ok());
        assert_eq!((table.room(1), table.room(2)), (Ok(()), Err(Errno::EMFILE)));
        assert_eq!(table.add(pipe(1), false), Ok(1));
        table.set_end(u64::MAX);
        assert_eq!((table.end(), table.duplicate(0, 1023, false)), (DESCRIPTORS_MAX as u64, Ok(1023)));
        table.set_end(0);
        assert_eq!(table.add(pipe(1), false), Err(Errno::EMFILE));
    }
}
