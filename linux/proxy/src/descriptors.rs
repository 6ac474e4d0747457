//! Descriptor numbers and the open descriptions they name.
//!
//! Invariants: a description's count equals the descriptors (and nothing else) that name it; a free
//! description has count 0, and was never used or is on the list of free ones; a number is in the
//! set of open ones if it names something, and only then it may be to be closed at exec. Plain data
//! that begins as zeroes: part of the state a forked child inherits, whose pages are there as far
//! as they were used. What a description *is* lives at its server.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Most descriptors of a process, whatever RLIMIT_NOFILE it sets: 10,000 clients of a server, and
/// what it has besides.
pub const DESCRIPTORS_MAX: usize = 10_240;

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
    /// The server of the volume on the disk.
    pub const VOLUME: u32 = 5;
    /// An epoll set, here in the proxy; `id` is its number.
    pub const EPOLL: u32 = 6;
    /// A signalfd, here in the proxy; `cookie` is its set of signals.
    pub const SIGNALS: u32 = 7;
    /// An event counter (eventfd), here in the proxy while this process alone has it; `id` is its
    /// number, `cookie` where it stands.
    pub const COUNTER: u32 = 8;
    /// A directory of /proc that only the proxy can list; `cookie` is where that goes on.
    pub const OWN: u32 = 9;

    /// Whether a server keeps files.
    pub const fn keeps_files(server: u32) -> bool {
        matches!(server, FS | VOLUME)
    }

    /// The server that keeps the file with this number, or of this description: that of the volume
    /// marks those that it gives.
    pub const fn of_file(id: u64) -> u32 {
        if id & contracts::files::OF_VOLUME == 0 { FS } else { VOLUME }
    }
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
    /// O_ACCMODE, O_APPEND, O_NONBLOCK, O_DSYNC and O_SYNC, or O_PATH, as fcntl gives them.
    pub flags: u32,
    /// S_IFMT bits of what it is; of an event counter here, whether a read takes one and not all.
    pub kind: u32,
    /// Where getdents64 goes on; the set of a signalfd; where an event counter stands; options of a
    /// socket that have no effect, by their numbers.
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

/// A set of descriptor numbers: a bit for each, and one for each word that is full.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Numbers {
    words: [u64; WORDS],
    full: [u64; FULL_WORDS],
}

const WORDS: usize = DESCRIPTORS_MAX / 64;
const FULL_WORDS: usize = WORDS.div_ceil(64);
const _: () = assert!(DESCRIPTORS_MAX.is_multiple_of(64));

/// The lowest number from `from` on that `of` says is in; it gives words of bits.
fn lowest_in(words: usize, from: usize, of: impl Fn(usize) -> u64) -> Option<usize> {
    let mut wanted = u64::MAX << (from % 64);
    for index in from / 64..words {
        let found = of(index) & wanted;
        if found != 0 {
            return Some(index * 64 + found.trailing_zeros() as usize);
        }
        wanted = u64::MAX;
    }
    None
}

impl Numbers {
    fn has(&self, number: usize) -> bool {
        self.words[number / 64] >> (number % 64) & 1 != 0
    }

    fn set(&mut self, number: usize, is_in: bool) {
        let put = |word: &mut u64, bit: usize, on: bool| *word = *word & !(1 << bit) | u64::from(on) << bit;
        put(&mut self.words[number / 64], number % 64, is_in);
        put(&mut self.full[number / 64 / 64], number / 64 % 64, self.words[number / 64] == u64::MAX);
    }

    /// The lowest number from `from` on that is not in it.
    fn lowest_absent(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = self.words.get(index)? | !(u64::MAX << (from % 64));
        if word == u64::MAX {
            index = lowest_in(FULL_WORDS, index + 1, |at| !self.full[at])?;
            word = *self.words.get(index)?;
        }
        Some(index * 64 + word.trailing_ones() as usize)
    }

    /// The lowest number from `from` on that is in it.
    fn next(&self, from: usize) -> Option<usize> {
        lowest_in(WORDS, from, |at| self.words[at])
    }
}

/// Numbers of servers are below this.
const SERVERS: usize = 10;

/// The table. Descriptions that are free hang on a list, by their ids.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Descriptors {
    /// New numbers are below this (RLIMIT_NOFILE); what is open stays open.
    end: u64,
    /// The first free description that was used before, plus 1.
    free: u64,
    /// Descriptions from here on were never used.
    fresh: u64,
    /// Descriptions by server.
    held: [u64; SERVERS],
    open: Numbers,
    close_on_exec: Numbers,
    /// Index of the description plus 1; 0 = closed.
    slots: [u16; DESCRIPTORS_MAX],
    descriptions: [Description; DESCRIPTORS_MAX],
}

impl Description {
    /// Is it of a file, directory or the like, and not of what is opened by other means?
    pub const fn is_file(&self) -> bool {
        server::keeps_files(self.server)
    }
}

impl Descriptors {
    #[inline]
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
    #[inline]
    pub fn get(&self, descriptor: u64) -> Result<&Description, Errno> {
        Ok(&self.descriptions[self.index(descriptor)?])
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, descriptor: u64) -> Result<&mut Description, Errno> {
        let index = self.index(descriptor)?;
        Ok(&mut self.descriptions[index])
    }

    /// A number for this description at its server, if there is one already. Looks at all.
    pub fn find(&self, server: u32, id: u64) -> Option<u64> {
        let used = self.descriptions.iter().take(self.fresh as usize);
        let of_it = |entry: &Description| entry.count > 0 && entry.server == server && entry.id == id;
        let index = used.into_iter().position(of_it)?;
        self.slots.iter().position(|slot| usize::from(*slot) == index + 1).map(|slot| slot as u64)
    }

    /// The description with this id at a server, under whatever numbers. Looks at all.
    pub fn held_at(&mut self, server: u32, id: u64) -> Option<&mut Description> {
        let used = self.descriptions.iter_mut().take(self.fresh as usize);
        used.into_iter().find(|entry| entry.count > 0 && entry.server == server && entry.id == id)
    }

    /// The descriptions at a server, each with whether exec closes all its numbers.
    pub fn all_at(&self, server: u32) -> Vec<(Description, bool)> {
        let mut found = BTreeMap::<usize, bool>::new();
        let mut next = if self.uses(server) { self.next_open(0) } else { None };
        while let Some(number) = next {
            if let Ok(index) = self.index(number)
                && self.descriptions[index].server == server
            {
                let closes = self.close_on_exec.has(number as usize);
                found.entry(index).and_modify(|all| *all &= closes).or_insert(closes);
            }
            next = self.next_open(number + 1);
        }
        found.into_iter().map(|(index, closes)| (self.descriptions[index], closes)).collect()
    }

    /// Does the number name something at that server?
    pub fn is_at(&self, descriptor: u64, server: u32) -> bool {
        self.get(descriptor).is_ok_and(|found| found.server == server)
    }

    /// A description is kept by another server from now on, under another id; `kind` is what it is
    /// there.
    pub fn moved(&mut self, from: (u32, u64), to: (u32, u64), kind: u32) {
        let Some(entry) = self.held_at(from.0, from.1) else { return };
        (entry.server, entry.id, entry.kind, entry.cookie) = (to.0, to.1, kind, 0);
        self.count(from.0, -1);
        self.count(to.0, 1);
    }

    fn lowest(&self, from: u64) -> Result<usize, Errno> {
        let free = self.open.lowest_absent(from.min(self.end()) as usize);
        free.filter(|slot| (*slot as u64) < self.end()).ok_or(Errno::EMFILE)
    }

    /// Is there room for `count` more? Looks for each.
    pub fn room(&self, count: usize) -> Result<(), Errno> {
        let mut from = 0;
        for _ in 0..count {
            from = self.lowest(from)? as u64 + 1;
        }
        Ok(())
    }

    fn take_free(&mut self) -> Result<usize, Errno> {
        let index = match (self.free as usize).checked_sub(1) {
            Some(index) => {
                self.free = self.descriptions.get(index).ok_or(Errno::EMFILE)?.id;
                index
            }
            None => {
                self.fresh += 1;
                self.fresh as usize - 1
            }
        };
        if index < DESCRIPTORS_MAX { Ok(index) } else { Err(Errno::EMFILE) }
    }

    fn count(&mut self, server: u32, change: i64) {
        if let Some(held) = self.held.get_mut(server as usize) {
            *held = held.saturating_add_signed(change);
        }
    }

    /// A new description under the lowest free number. `EMFILE`.
    pub fn add(&mut self, description: Description, close_on_exec: bool) -> Result<u64, Errno> {
        let slot = self.lowest(0)?;
        let index = self.take_free()?;
        self.descriptions[index] = Description { count: 0, ..description };
        self.count(description.server, 1);
        self.put(slot, index, close_on_exec);
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

    /// A second number `to`, which is not the first; gives what that named before. `EBADF`, past
    /// the limit too.
    pub fn duplicate_to(&mut self, descriptor: u64, to: u64, close_on_exec: bool) -> Result<Option<Closed>, Errno> {
        let index = self.index(descriptor)?;
        let slot = to as u32 as usize;
        if slot as u64 >= self.end() || slot == descriptor as u32 as usize {
            return Err(Errno::EBADF);
        }
        let lost = self.close(to).ok();
        self.put(slot, index, close_on_exec);
        Ok(lost)
    }

    fn put(&mut self, slot: usize, index: usize, close_on_exec: bool) {
        self.slots[slot] = index as u16 + 1;
        self.open.set(slot, true);
        self.close_on_exec.set(slot, close_on_exec);
        self.descriptions[index].count += 1;
    }

    /// Closes a number. `EBADF`.
    pub fn close(&mut self, descriptor: u64) -> Result<Closed, Errno> {
        let index = self.index(descriptor)?;
        let slot = descriptor as u32 as usize;
        self.slots[slot] = 0;
        self.open.set(slot, false);
        self.close_on_exec.set(slot, false);
        let free = self.free;
        let entry = &mut self.descriptions[index];
        entry.count = entry.count.saturating_sub(1);
        let closed = Closed { description: *entry, is_last: entry.count == 0 };
        if closed.is_last {
            entry.id = free;
            self.free = index as u64 + 1;
            self.count(closed.description.server, -1);
        }
        Ok(closed)
    }

    /// The close-on-exec flag.
    pub fn close_on_exec(&self, descriptor: u64) -> Result<bool, Errno> {
        self.index(descriptor).map(|_| self.close_on_exec.has(descriptor as u32 as usize))
    }

    /// Sets it.
    pub fn set_close_on_exec(&mut self, descriptor: u64, on: bool) -> Result<(), Errno> {
        self.index(descriptor)?;
        self.close_on_exec.set(descriptor as u32 as usize, on);
        Ok(())
    }

    /// Open numbers that exec closes.
    pub fn next_to_close_at_exec(&self) -> Option<u64> {
        self.close_on_exec.next(0).map(|slot| slot as u64)
    }

    /// The lowest open number from `from` on.
    pub fn next_open(&self, from: u64) -> Option<u64> {
        self.open.next(usize::try_from(from).ok()?).map(|slot| slot as u64)
    }

    /// Does any description live at this server? (Which servers a fork has to tell.)
    pub fn uses(&self, server: u32) -> bool {
        self.held.get(server as usize).is_some_and(|held| *held > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// As a new process has it.
    fn table() -> Box<Descriptors> {
        let mut table: Box<Descriptors> = Descriptors::new_box_zeroed().unwrap();
        table.set_end(u64::MAX);
        table
    }

    /// The naive model: what each open number names, with its flag.
    #[derive(Default)]
    struct Model(std::collections::BTreeMap<u64, (u64, bool)>);

    impl Model {
        fn lowest(&self, from: u64, end: u64) -> Option<u64> {
            (from..end).find(|number| !self.0.contains_key(number))
        }
        fn names(&self, id: u64) -> usize {
            self.0.values().filter(|(named, _)| *named == id).count()
        }
    }

    #[test]
    fn follows_a_model() {
        let mut seed = 0x2545_f491_4f6c_dd1du64;
        let mut random = |limit: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % limit
        };
        let (mut table, mut model, mut end) = (table(), Model::default(), DESCRIPTORS_MAX as u64);
        // Few numbers, whose words get full, then many.
        for step in 1..16_000u64 {
            let span = if step < 12_000 { 140 } else { DESCRIPTORS_MAX as u64 + 3 };
            let (number, from, flag) = (random(span), random(span), random(2) == 0);
            let known = model.0.get(&number).map(|(id, _)| *id);
            match random(16) {
                0..=6 => {
                    let lowest = model.lowest(0, end);
                    assert_eq!(table.add(pipe(step), flag), lowest.ok_or(Errno::EMFILE));
                    model.0.extend(lowest.map(|number| (number, (step, flag))));
                }
                7 | 8 => {
                    let made = match known {
                        None => Err(Errno::EBADF),
                        Some(_) if from >= end => Err(Errno::EINVAL),
                        Some(_) => model.lowest(from, end).ok_or(Errno::EMFILE),
                    };
                    assert_eq!(table.duplicate(number, from, flag), made);
                    model.0.extend(made.ok().map(|made| (made, (known.unwrap(), flag))));
                }
                9 | 10 if from != number => {
                    let made = table.duplicate_to(number, from, flag);
                    let Some(id) = known.filter(|_| from < end) else {
                        assert_eq!(made, Err(Errno::EBADF));
                        continue;
                    };
                    let lost = model.0.insert(from, (id, flag)).map(|(lost, _)| (lost, model.names(lost) == 0));
                    assert_eq!(made.unwrap().map(|closed| (closed.description.id, closed.is_last)), lost);
                }
                11..=13 => {
                    let closed = table.close(number).ok();
                    let lost = model.0.remove(&number).map(|(lost, _)| (lost, model.names(lost) == 0));
                    assert_eq!(closed.map(|closed| (closed.description.id, closed.is_last)), lost);
                }
                14 => {
                    assert_eq!(table.set_close_on_exec(number, flag).is_ok(), known.is_some());
                    model.0.entry(number).and_modify(|entry| entry.1 = flag);
                }
                _ if step % 40 == 0 => {
                    end = random(span).min(DESCRIPTORS_MAX as u64);
                    table.set_end(end);
                }
                _ => {
                    end = {
                        table.set_end(u64::MAX);
                        DESCRIPTORS_MAX as u64
                    }
                }
            }
            let known = model.0.get(&from);
            assert_eq!(table.get(from).map(|found| found.id).ok(), known.map(|(id, _)| *id));
            assert_eq!(table.close_on_exec(from).ok(), known.map(|(_, flag)| *flag));
            assert_eq!(table.next_open(from), model.0.range(from..).next().map(|(number, _)| *number));
            let to_close = model.0.iter().find(|(_, (_, flag))| *flag);
            assert_eq!(table.next_to_close_at_exec(), to_close.map(|(number, _)| *number));
            assert_eq!(table.uses(server::PROCESS), !model.0.is_empty());
        }
        // Each description is used again: there are as many as numbers.
        while let Some(number) = table.next_open(0) {
            table.close(number).unwrap();
        }
        table.set_end(u64::MAX);
        (0..DESCRIPTORS_MAX as u64).for_each(|number| assert_eq!(table.add(pipe(1), false), Ok(number)));
        assert_eq!(table.room(1), Err(Errno::EMFILE));
    }

    fn pipe(id: u64) -> Description {
        Description { id, server: server::PROCESS, ..Description::default() }
    }

    #[test]
    fn numbers_are_lowest_first_and_counted() {
        let mut table = table();
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
        for bad in [0, 255, 1024, 10_239, 10_240, u64::MAX, 1 << 40] {
            assert_eq!(table.get(bad).err(), Some(Errno::EBADF));
        }
    }

    #[test]
    fn the_limit_is_an_error() {
        let mut table = table();
        (0..DESCRIPTORS_MAX).for_each(|number| assert_eq!(table.add(pipe(1), true), Ok(number as u64)));
        assert_eq!(table.add(pipe(1), false), Err(Errno::EMFILE));
        assert_eq!(table.duplicate(0, 0, false), Err(Errno::EMFILE));
        assert_eq!(table.duplicate(0, 40_000, false), Err(Errno::EINVAL));
        assert_eq!(table.room(1), Err(Errno::EMFILE));
        while let Some(number) = table.next_to_close_at_exec() {
            assert!(table.close(number).unwrap().is_last);
        }
        assert!(!table.uses(server::PROCESS));
    }

    #[test]
    fn a_lower_limit_holds_for_new_numbers() {
        let mut table = table();
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
        assert_eq!((table.end(), table.duplicate(0, 10_239, false)), (DESCRIPTORS_MAX as u64, Ok(10_239)));
        table.set_end(0);
        assert_eq!(table.add(pipe(1), false), Err(Errno::EMFILE));
    }

    #[test]
    fn a_description_moves_to_another_server_under_all_its_numbers() {
        let mut table = table();
        let here = |id| Description { id, server: server::COUNTER, cookie: 5, kind: 1, ..Description::default() };
        let first = table.add(here(1), true).unwrap();
        let second = table.duplicate(first, 0, false).unwrap();
        let third = table.add(here(2), true).unwrap();
        table.add(pipe(9), false).unwrap();
        let closes: Vec<_> = table.all_at(server::COUNTER).iter().map(|(found, closes)| (found.id, *closes)).collect();
        assert_eq!(closes, [(1, false), (2, true)]);
        table.moved((server::COUNTER, 1), (server::PROCESS, 77), 0);
        let moved = Description { id: 77, server: server::PROCESS, count: 2, ..Description::default() };
        assert_eq!((table.get(first), table.get(second)), (Ok(&moved), Ok(&moved)));
        assert!(table.held_at(server::COUNTER, 1).is_none() && table.held_at(server::COUNTER, 2).is_some());
        assert!(table.is_at(third, server::COUNTER) && !table.is_at(first, server::COUNTER));
        table.close(third).unwrap();
        assert!(!table.uses(server::COUNTER) && table.all_at(server::COUNTER).is_empty());
    }

    #[test]
    fn only_what_is_open_is_found_at_its_server() {
        let mut table = table();
        let at = |server, id| Description { id, server, count: 7, ..Description::default() };
        let number = table.add(at(server::FS, 5), false).unwrap();
        table.add(at(server::PROCESS, 6), false).unwrap();
        assert!(table.held_at(server::PROCESS, 5).is_none() && table.held_at(server::FS, 6).is_none());
        assert_eq!(table.held_at(server::FS, 5).map(|found| found.count), Some(1), "it has one number");
        assert!(table.close(number).unwrap().is_last);
        assert!((0..20).all(|id| table.held_at(server::FS, id).is_none()), "its place is free");
    }

    #[test]
    fn files_are_at_the_server_that_their_numbers_say() {
        let volume = contracts::files::OF_VOLUME;
        for (id, server) in [(0, server::FS), (7, server::FS), (volume, server::VOLUME), (volume | 7, server::VOLUME)] {
            assert_eq!(server::of_file(id), server);
        }
        let keeps = |server| [server::keeps_files(server), Description { server, ..Description::default() }.is_file()];
        let others = [server::PROCESS, server::CONSOLE, server::COUNTER, server::OWN];
        assert!([server::FS, server::VOLUME].map(keeps) == [[true; 2]; 2] && others.map(keeps) == [[false; 2]; 4]);
    }

    /// The table lies in the program's own memory.
    #[test]
    fn a_table_that_its_program_damaged_gives_errors() {
        let mut table = table();
        let number = table.add(pipe(1), false).unwrap();
        table.slots[number as usize] = DESCRIPTORS_MAX as u16 + 1;
        assert_eq!(table.get(number), Err(Errno::EBADF));
        table.fresh = DESCRIPTORS_MAX as u64;
        assert_eq!(table.add(pipe(2), false), Err(Errno::EMFILE));
    }
}
