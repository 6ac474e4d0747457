//! Pipes: making them, how much they hold, and those that have a name (fifo(7)): programs open them
//! by a file, as often as they like and on either side.
//!
//! Invariants: a named pipe lives, with what lies in it, while somebody has it open; a side is gone
//! while nobody has it open, and back when somebody opens it.

use super::*;

/// A pipe that has a file.
#[derive(Debug, Default)]
pub(super) struct Named {
    file: u64,
    pub(super) ends: BTreeSet<DescriptionId>,
    readers: usize,
    writers: usize,
    /// How often each side was opened.
    opened: Opened,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Opened {
    to_read: u64,
    to_write: u64,
}

/// A description of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) pipe: DescriptionId,
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// What there was when it was opened.
    since: Opened,
}

impl Descriptions {
    /// A new pipe: its reading and its writing end. `TooMany`.
    pub fn pipe(&mut self, client: u64) -> Result<(DescriptionId, DescriptionId), Error> {
        let made = self.new_pipe(client)?;
        let pipe = self.last_id + 1;
        self.pipes.insert(pipe, made);
        let ends = [true, false].map(|reads| self.add(client, Object::PipeEnd { pipe, reads }));
        Ok((ends[0], ends[1]))
    }

    /// A pipe for a client, of the size that it may have. `TooMany`.
    fn new_pipe(&mut self, client: u64) -> Result<Pipe, Error> {
        let is_end = |open: &Open| matches!(open.object, Object::PipeEnd { .. } | Object::NamedEnd(_));
        let is_own_end = |open: &&Open| is_end(open) && open.holders.contains(client);
        if !may_have(PIPES_MAX, self.pipes.len(), || self.all.values().filter(is_own_end).count().div_ceil(2)) {
            return Err(Error::TooMany);
        }
        let is_of_large = |open: &&Open| match &open.object {
            Object::PipeEnd { pipe, .. } | Object::NamedEnd(End { pipe, .. }) => {
                self.pipes.get(pipe).is_some_and(|pipe| !pipe.is_small())
            }
            _ => false,
        };
        let own_large = || self.all.values().filter(is_own_end).filter(is_of_large).count().div_ceil(2);
        let is_small = !may_have(LARGE_PIPES_MAX, self.large_pipes, own_large);
        self.large_pipes += usize::from(!is_small);
        Ok(Pipe::new(is_small))
    }

    /// Opens the named pipe of a file for a client. `NotFound` for who only writes and does not
    /// `wait`, if nobody reads; `TooMany`, `Invalid` for neither side.
    pub fn open_named(
        &mut self,
        client: u64,
        file: u64,
        (reads, writes): (bool, bool),
        wait: bool,
    ) -> Result<DescriptionId, Error> {
        let known = self.named.iter().find(|(_, named)| named.file == file);
        let known = known.map(|(pipe, named)| (*pipe, named.readers));
        if !reads && !writes {
            return Err(Error::Invalid);
        }
        if !reads && !wait && known.is_none_or(|(_, readers)| readers == 0) {
            return Err(Error::NotFound);
        }
        let pipe = match known {
            Some((pipe, _)) => pipe,
            None => {
                let mut made = self.new_pipe(client)?;
                (made.readers_gone, made.writers_gone) = (true, true);
                // As if it had the ids of two ends.
                let pipe = self.last_id + 1;
                self.last_id += 2;
                self.pipes.insert(pipe, made);
                self.named.insert(pipe, Named { file, ..Named::default() });
                pipe
            }
        };
        let since = self.named.get(&pipe).map(|named| named.opened).unwrap_or_default();
        let id = self.add(client, Object::NamedEnd(End { pipe, reads, writes, since }));
        if let (Some(named), Some(content)) = (self.named.get_mut(&pipe), self.pipes.get_mut(&pipe)) {
            named.ends.insert(id);
            named.readers += usize::from(reads);
            named.writers += usize::from(writes);
            named.opened.to_read += u64::from(reads);
            named.opened.to_write += u64::from(writes);
            content.readers_gone &= !reads;
            content.writers_gone &= !writes;
        }
        self.tell_end(pipe, true);
        Ok(id)
    }

    /// Has somebody opened the other side, since this one was opened or before? `WouldBlock` if
    /// not.
    pub fn has_joined(&mut self, client: u64, id: DescriptionId) -> Result<(), Error> {
        let Object::NamedEnd(end) = *self.held(client, id)? else { return Err(Error::NotSupported) };
        let named = self.named.get(&end.pipe).ok_or(Error::Failed)?;
        let has_writer = named.writers > 0 || named.opened.to_write != end.since.to_write;
        let has_reader = named.readers > 0 || named.opened.to_read != end.since.to_read;
        let is_joined = (!end.reads || has_writer) && (!end.writes || has_reader);
        if is_joined { Ok(()) } else { Err(Error::WouldBlock) }
    }

    /// The file of a named pipe that a description is of.
    pub fn file_of(&self, id: DescriptionId) -> Option<u64> {
        match self.all.get(&id)?.object {
            Object::NamedEnd(End { pipe, .. }) => self.named.get(&pipe).map(|named| named.file),
            _ => None,
        }
    }

    /// Bytes that a pipe holds, after a change to `wanted` if that is something. `NotSupported` for
    /// what is no pipe; as for [`Pipe::set_capacity`].
    pub fn capacity(&mut self, client: u64, id: DescriptionId, wanted: Option<usize>) -> Result<usize, Error> {
        let pipe = match *self.held(client, id)? {
            Object::PipeEnd { pipe, .. } | Object::NamedEnd(End { pipe, .. }) => pipe,
            _ => return Err(Error::NotSupported),
        };
        let content = self.pipes.get_mut(&pipe).ok_or(Error::Failed)?;
        let Some(wanted) = wanted else { return Ok(content.capacity()) };
        let bytes = content.set_capacity(wanted)?;
        self.tell_end(pipe, false);
        Ok(bytes)
    }

    /// What holds of a description. A reader hears that all writers are gone only if there was one.
    pub(super) fn ready_named(&self, end: &End) -> u32 {
        let (Some(named), Some(content)) = (self.named.get(&end.pipe), self.pipes.get(&end.pipe)) else { return 0 };
        let mut found = 0;
        if end.reads {
            let is_over = named.writers == 0 && named.opened.to_write != end.since.to_write;
            found |= if is_over { ready::HANGUP } else { 0 };
            found |= if content.held() > 0 { ready::READ } else { 0 };
        }
        if end.writes {
            found |= of_writer(content);
        }
        found
    }

    pub(super) fn close_named(&mut self, id: DescriptionId, end: &End) {
        let (Some(named), Some(content)) = (self.named.get_mut(&end.pipe), self.pipes.get_mut(&end.pipe)) else {
            return;
        };
        named.ends.remove(&id);
        named.readers -= usize::from(end.reads);
        named.writers -= usize::from(end.writes);
        content.readers_gone = named.readers == 0;
        content.writers_gone = named.writers == 0;
        if named.ends.is_empty() {
            self.large_pipes -= usize::from(!content.is_small());
            self.named.remove(&end.pipe);
            self.pipes.remove(&end.pipe);
        } else {
            self.tell_end(end.pipe, true);
        }
    }
}

/// What holds of who may read.
pub(super) fn of_reader(pipe: &Pipe) -> u32 {
    let data = if pipe.held() > 0 { ready::READ } else { 0 };
    data | if pipe.writers_gone { ready::HANGUP } else { 0 }
}

/// What holds of who may write.
pub(super) fn of_writer(pipe: &Pipe) -> u32 {
    let room = if pipe.writable(pipe::ATOMIC_BYTES) == Room::Wait { 0 } else { ready::WRITE };
    room | if pipe.readers_gone { ready::ERROR } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CHILD, ME, read, write};
    use super::*;
    use alloc::vec;

    const TO_READ: (bool, bool) = (true, false);
    const TO_WRITE: (bool, bool) = (false, true);

    #[test]
    fn each_side_waits_for_the_other() {
        let mut all = Descriptions::default();
        assert_eq!(all.open_named(ME, 5, TO_WRITE, false), Err(Error::NotFound));
        assert_eq!(all.open_named(ME, 5, (false, false), true), Err(Error::Invalid));
        let reading = all.open_named(ME, 5, TO_READ, true).unwrap();
        assert_eq!(all.has_joined(ME, reading), Err(Error::WouldBlock));
        all.take_changed();
        let writing = all.open_named(CHILD, 5, TO_WRITE, false).unwrap();
        assert_eq!(all.take_changed(), [reading, writing]);
        assert_eq!((all.has_joined(ME, reading), all.has_joined(CHILD, writing)), (Ok(()), Ok(())));
        // A writer that has gone again was there.
        let late = all.open_named(ME, 6, TO_READ, true).unwrap();
        let short = all.open_named(ME, 6, TO_WRITE, true).unwrap();
        all.close(ME, short).unwrap();
        assert_eq!(all.has_joined(ME, late), Ok(()));
        assert_eq!(all.has_joined(CHILD, late), Err(Error::BadId));
        let both = all.open_named(ME, 7, (true, true), true).unwrap();
        assert_eq!((all.has_joined(ME, both), all.file_of(both)), (Ok(()), Some(7)));
    }

    #[test]
    fn who_opens_first_meets_nobody_and_who_opens_later_does() {
        let mut all = Descriptions::default();
        let writing = all.open_named(ME, 5, TO_WRITE, true).unwrap();
        assert_eq!(all.has_joined(ME, writing), Err(Error::WouldBlock));
        assert_eq!((all.ready(writing, 0), write(&mut all, ME, writing, b"x")), (ready::ERROR, Err(Error::BrokenPipe)));
        let reading = all.open_named(CHILD, 5, TO_READ, true).unwrap();
        assert_eq!(all.has_joined(CHILD, reading), Ok(()), "the writer was there before");
        // A reader that has gone again was there.
        all.close(CHILD, reading).unwrap();
        assert_eq!(all.has_joined(ME, writing), Ok(()));
        let late = all.open_named(ME, 5, TO_WRITE, true).unwrap();
        assert_eq!(all.has_joined(ME, late), Err(Error::WouldBlock), "not since this one was opened");
    }

    #[test]
    fn bytes_pass_and_the_last_end_takes_what_is_left() {
        let mut all = Descriptions::default();
        let reading = all.open_named(ME, 5, TO_READ, false).unwrap();
        // Nobody was there: an end, but no hang-up.
        assert_eq!((read(&mut all, ME, reading, 9), all.ready(reading, ready::READ)), (Ok(Vec::new()), 0));
        let writers = [ME, CHILD].map(|client| all.open_named(client, 5, TO_WRITE, true).unwrap());
        assert_eq!(read(&mut all, ME, reading, 9), Err(Error::WouldBlock));
        all.take_changed();
        assert_eq!(write(&mut all, CHILD, writers[1], b"hello"), Ok(5));
        assert_eq!(all.take_changed(), [reading, writers[0], writers[1]]);
        assert_eq!((all.available(ME, reading), all.ready(reading, ready::READ)), (Ok(5), ready::READ));
        assert_eq!(write(&mut all, ME, reading, b"x"), Err(Error::BadId));
        assert_eq!(read(&mut all, ME, writers[0], 9), Err(Error::BadId));
        all.close(ME, writers[0]).unwrap();
        assert_eq!(read(&mut all, ME, reading, 2).unwrap(), b"he");
        all.remove_clients(CHILD..=CHILD, |_| true);
        assert_eq!(all.ready(reading, ready::READ), ready::READ | ready::HANGUP);
        assert_eq!(
            (read(&mut all, ME, reading, 9).unwrap(), read(&mut all, ME, reading, 9)),
            (b"llo".to_vec(), Ok(vec![]))
        );
        // The end can be read, and is told by the hang-up alone.
        assert_eq!(all.ready(reading, ready::READ), ready::HANGUP);
        // One more writer, and it is a pipe again.
        let again = all.open_named(ME, 5, TO_WRITE, false).unwrap();
        assert_eq!((all.ready(reading, ready::READ), write(&mut all, ME, again, b"left")), (0, Ok(4)));
        all.close(ME, reading).unwrap();
        assert_eq!((all.ready(again, 0), write(&mut all, ME, again, b"x")), (ready::ERROR, Err(Error::BrokenPipe)));
        all.close(ME, again).unwrap();
        assert!(all.all.is_empty() && all.pipes.is_empty() && all.named.is_empty() && all.large_pipes == 0);
        let fresh = all.open_named(ME, 5, (true, true), true).unwrap();
        assert_eq!(read(&mut all, ME, fresh, 9), Err(Error::WouldBlock));
    }

    #[test]
    fn a_capacity_is_told_and_changed_by_either_end() {
        let mut all = Descriptions::default();
        let (reading, writing) = all.pipe(ME).unwrap();
        assert_eq!(all.capacity(ME, reading, None), Ok(pipe::CAPACITY_BYTES));
        assert_eq!(all.capacity(ME, writing, Some(8000)), Ok(8192));
        assert_eq!(all.capacity(ME, reading, None), Ok(8192));
        assert_eq!(all.capacity(CHILD, reading, None), Err(Error::BadId));
        let event = all.event(ME, 0, false).unwrap();
        assert_eq!(all.capacity(ME, event, None), Err(Error::NotSupported));
    }
}
