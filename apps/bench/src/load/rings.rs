//! What a message between two cores costs by the channels' own ring (Barrelfish section 4.6, tables
//! 2 and 3): core 0 and 1 are a pair, 2 and 3 the next.
//!
//! `message/round-trip`: each of a pair sends and takes a message in turn. `message/send` and
//! `message/receive`: one sends as fast as the other takes, with a queue of 16.

use core::sync::atomic::AtomicU64;

use ring::{Buffer, Header, Kind, Reader, Slot, Writer};

use super::Room;
use crate::parts::LINE_BYTES;
use crate::sample::Stopwatch;

const MESSAGES: u64 = 512;
const SLOTS: usize = 16;
/// Of each core's ring: slots, and the reader's index after them.
pub(super) const LINES: u64 = 32;
/// First line of the first core's.
pub(super) const FIRST: u64 = 1024;
const GENERATION: u32 = 1;
const HEADER: Header = Header { kind: Kind::OneWay, operation: 1, correlation: 0 };
const BODY: [u8; 8] = [7; 8];
const _: () = assert!(SLOTS < LINES as usize && size_of::<Slot>() as u64 == LINE_BYTES);

/// A core's end of its pair: the ring it sends to its partner by, and the one it hears by.
struct End<'r> {
    out: (&'r [Slot], &'r AtomicU64, Writer),
    into: (&'r [Slot], &'r AtomicU64, Reader),
    buffer: Buffer,
}

impl End<'_> {
    fn send(&mut self) {
        let (slots, index, writer) = &mut self.out;
        while writer.write(slots, index, HEADER, &BODY).is_err() {
            core::hint::spin_loop();
        }
    }

    fn receive(&mut self) {
        let (slots, index, reader) = &mut self.into;
        while !matches!(reader.read(slots, index, &mut self.buffer), Ok(Some(_))) {
            core::hint::spin_loop();
        }
    }
}

fn ring(room: &Room, of: u64) -> (&[Slot], &AtomicU64) {
    let first = FIRST + LINES * of;
    // SAFETY: `run` checked that the region has these lines; they are mapped for the component's
    // life and used as a ring only.
    let slots = unsafe { core::slice::from_raw_parts(room.line(first) as *const AtomicU64 as *const Slot, SLOTS) };
    (slots, room.line(first + SLOTS as u64))
}

/// All rows. A last core without a partner waits for the others.
pub(super) fn rows(room: &mut Room) {
    let (core, partner) = (room.core, room.core ^ 1);
    if partner >= room.cores {
        room.meet();
        room.until_all_finish(|_| core::hint::spin_loop());
        return;
    }
    let is_first = core < partner;
    room.meet();
    {
        let ((inbound, taken), (outbound, index)) = (ring(room, core), ring(room, partner));
        let mut end = End {
            out: (outbound, index, Writer::new(GENERATION)),
            into: (inbound, taken, Reader::new(GENERATION, taken)),
            buffer: Buffer::default(),
        };
        let turn = |end: &mut End| {
            if is_first {
                end.send();
            }
            end.receive();
            if !is_first {
                end.send();
            }
        };
        (0..MESSAGES).for_each(|_| turn(&mut end));
        let watch = Stopwatch::start("message/round-trip", MESSAGES);
        (0..MESSAGES).for_each(|_| turn(&mut end));
        watch.stop();
        let name = if is_first { "message/send" } else { "message/receive" };
        let one = |end: &mut End| if is_first { end.send() } else { end.receive() };
        (0..MESSAGES).for_each(|_| one(&mut end));
        let watch = Stopwatch::start(name, MESSAGES);
        (0..MESSAGES).for_each(|_| one(&mut end));
        watch.stop();
    }
    room.until_all_finish(|_| core::hint::spin_loop());
}
