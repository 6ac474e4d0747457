//! A ring of fixed-size records of what this core did, in its own memory: the oldest are
//! overwritten, and `TraceRead` says how many were lost.

use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt};
use core::ptr::NonNull;

/// Pages of the ring.
pub const PAGES: u64 = 4;
const RECORDS: u64 = PAGES * PAGE_BYTES as u64 / size_of::<Record>() as u64;

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Event {
    /// Another context runs: its id; (id of the context before, id of the scheduling context whose
    /// time it uses: another's in a portal call).
    Switch = 1,
    /// A page fault was resolved: (address, error code).
    SoftFault = 2,
    /// An exception went to the program or ended it: (vector, address).
    HardFault = 3,
    /// A device interrupt: (vector, 0).
    Interrupt = 4,
    /// Another core woke this one: (slot, 0).
    Wake = 5,
    /// A domain ended: (domain id, cause).
    Death = 6,
}

/// One record, as `TraceRead` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Nanoseconds since boot.
    pub time_ns: u64,
    /// An [`Event`].
    pub event: u64,
    /// Object id of the context it concerns; 0 if none.
    pub context: u64,
    /// See [`Event`].
    pub words: [u64; 2],
}

/// Bytes of a record.
pub const RECORD_BYTES: usize = size_of::<Record>();

/// The ring.
pub struct Trace {
    ring: Option<NonNull<Record>>,
    /// How often it was filled, and where the next record is written.
    rounds: u64,
    next: usize,
    /// Records read since boot.
    read: u64,
}

impl Trace {
    /// Without memory: records nothing.
    pub(crate) const fn new() -> Trace {
        Trace { ring: None, rounds: 0, next: 0, read: 0 }
    }

    /// Gives it its memory: [`PAGES`] contiguous pages.
    pub fn set_ring(&mut self, ring: PhysAddr) {
        self.ring = NonNull::new(phys_to_virt(ring).cast());
    }

    fn place(&self, index: usize) -> Option<*mut Record> {
        Some(self.ring?.as_ptr().wrapping_add(index))
    }

    /// Adds a record.
    #[inline(always)]
    pub fn add(&mut self, time_ns: u64, event: Event, context: u64, words: [u64; 2]) {
        if let Some(place) = self.place(self.next) {
            // SAFETY: inside the ring, which is the kernel's own memory.
            unsafe { place.write(Record { time_ns, event: event as u64, context, words }) };
            self.next = self.next.wrapping_add(1);
            if self.next == RECORDS as usize {
                self.next = 0;
                self.rounds += 1;
            }
        }
    }

    /// Records written since boot.
    fn written(&self) -> u64 {
        self.rounds * RECORDS + self.next as u64
    }

    /// Records that were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        (self.written() - self.read).saturating_sub(RECORDS)
    }

    /// The next record to read as bytes; it counts as read after [`Trace::advance`].
    pub fn peek(&self) -> Option<[u8; RECORD_BYTES]> {
        let number = self.read + self.lost();
        if number >= self.written() {
            return None;
        }
        // SAFETY: the record was written, and is plain numbers.
        Some(unsafe { self.place((number % RECORDS) as usize)?.cast::<[u8; RECORD_BYTES]>().read() })
    }

    /// Counts what `peek` showed, and what was lost before it, as read.
    pub fn advance(&mut self) {
        self.read += self.lost() + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::set_test_ram;

    fn with_ring() -> (Trace, Vec<u128>) {
        let mut memory = vec![0u128; PAGES as usize * PAGE_BYTES / 16];
        set_test_ram(memory.as_mut_ptr().cast());
        let mut trace = Trace::new();
        trace.set_ring(PhysAddr(0));
        set_test_ram(core::ptr::null_mut());
        (trace, memory)
    }

    /// The records that are there, by their time; each is read once.
    fn read(trace: &mut Trace) -> Vec<u64> {
        let record = |bytes: [u8; RECORD_BYTES]| -> [u64; 5] {
            core::array::from_fn(|at| u64::from_ne_bytes(bytes[8 * at..][..8].try_into().unwrap()))
        };
        let mut times = Vec::new();
        while let Some(bytes) = trace.peek() {
            assert_eq!(trace.peek(), Some(bytes), "it is not read yet");
            trace.advance();
            let [time_ns, event, context, first, second] = record(bytes);
            assert_eq!([event, context, first, second], [Event::Wake as u64, time_ns + 1, time_ns + 2, 7]);
            times.push(time_ns);
        }
        times
    }

    fn add(trace: &mut Trace, times: core::ops::Range<u64>) {
        times.for_each(|time| trace.add(time, Event::Wake, time + 1, [time + 2, 7]));
    }

    #[test]
    fn records_are_read_once_in_order() {
        let (mut trace, _memory) = with_ring();
        assert_eq!((trace.peek(), trace.lost()), (None, 0));
        for times in [0..3, 3..4, 4..4, 4..RECORDS + 4, RECORDS + 4..2 * RECORDS + 4] {
            add(&mut trace, times.clone());
            assert_eq!((trace.lost(), read(&mut trace)), (0, times.collect()));
        }
    }

    #[test]
    fn the_oldest_are_lost_and_counted() {
        let (mut trace, _memory) = with_ring();
        add(&mut trace, 0..2);
        assert_eq!(read(&mut trace), [0, 1]);
        add(&mut trace, 2..3 * RECORDS + 5);
        assert_eq!(trace.lost(), 2 * RECORDS + 3);
        assert_eq!(read(&mut trace), (2 * RECORDS + 5..3 * RECORDS + 5).collect::<Vec<_>>());
        assert_eq!((trace.lost(), trace.peek()), (0, None));
        add(&mut trace, 0..RECORDS + 1);
        assert_eq!((trace.lost(), read(&mut trace).len() as u64), (1, RECORDS));
    }

    #[test]
    fn the_ring_has_as_many_records_as_its_memory_has_room_for() {
        let (mut trace, memory) = with_ring();
        add(&mut trace, 0..1000);
        let bytes = read(&mut trace).len() * RECORD_BYTES;
        let room = size_of_val(memory.as_slice());
        assert!(bytes <= room && bytes + RECORD_BYTES > room);
    }

    #[test]
    fn without_memory_nothing_is_recorded() {
        let mut trace = Trace::new();
        add(&mut trace, 0..3);
        assert_eq!((trace.peek(), trace.lost()), (None, 0));
    }
}
