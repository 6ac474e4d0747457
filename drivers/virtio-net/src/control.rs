//! The control queue (virtio 1.2, section 5.1.6.5): settings of the device, one command at a time.
//!
//! Two descriptors: the command, which the device reads, and its answer, a byte which it writes.
//! What the device writes is decoded: it can make a command look refused or done, nothing else. A
//! successor finds in the region what was asked and answered last, and goes on with it.

use core::sync::atomic::{Ordering, fence};
use packet::{Memory, OutOfBounds};

use virtio::transport::QueueAddresses;

/// Entries of the queue.
pub const ENTRIES: u16 = 2;
/// Bytes of a control queue with its command and answer.
pub const CONTROL_BYTES: usize = 512;
const AVAILABLE_OFFSET: usize = 64;
const USED_OFFSET: usize = 128;
const COMMAND_OFFSET: usize = 256;
const COMMAND_BYTES: u32 = 3;
const ANSWER_OFFSET: usize = 320;

/// Descriptor flags: another one follows; the device writes.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Class and command of section 5.1.6.5.1: receive all frames, to any address.
const PROMISCUOUS: [u8; 2] = [0, 0];
/// The answer to a command that was carried out.
const DONE: u8 = 0;
/// What no device answers.
const NO_ANSWER: u8 = 0xff;

/// A command that the device has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// All frames were asked for.
    pub on: bool,
    /// The device does as it was told.
    pub is_done: bool,
}

/// One queue in the ring region.
pub struct Control<M> {
    memory: M,
    base: usize,
    /// Commands sent.
    sent: u16,
    /// What is asked for by the command under way.
    asked: Option<bool>,
}

impl<M: Memory> Control<M> {
    /// An empty queue at `base` of the ring region, which a device sees at `physical`. The device
    /// must be reset. `OutOfBounds` if the region is too small.
    pub fn new(memory: M, base: usize, physical: u64) -> Result<Control<M>, OutOfBounds> {
        memory.write(base, &[0; CONTROL_BYTES])?;
        let at = physical + base as u64;
        let queue = Control { memory, base, sent: 0, asked: None };
        for (number, descriptor) in descriptors(at).iter().enumerate() {
            queue.write(16 * number, descriptor);
        }
        Ok(queue)
    }

    /// The queue that a predecessor left there, with the command under way, if there is one; and
    /// what the device was told last, and whether it did that. `None`: it is not as a predecessor
    /// leaves it.
    pub fn adopt(memory: M, base: usize, physical: u64) -> Option<(Control<M>, Option<Told>)> {
        let mut found = [0; 32];
        memory.read(base, &mut found).ok()?;
        if found.as_chunks().0 != descriptors(physical + base as u64) {
            return None;
        }
        let sent = memory.load_u16(base + AVAILABLE_OFFSET + 2).ok()?;
        let used = memory.load_u16(base + USED_OFFSET + 2).ok()?;
        let (mut command, mut answer) = ([0; COMMAND_BYTES as usize], [NO_ANSWER]);
        memory.read(base + COMMAND_OFFSET, &mut command).ok()?;
        memory.read(base + ANSWER_OFFSET, &mut answer).ok()?;
        let [.., on] = command;
        let is_under_way = match sent.wrapping_sub(used) {
            0 => false,
            1 => true,
            _ => return None,
        };
        let known = (!is_under_way && sent != 0 && answer != [NO_ANSWER])
            .then_some(Told { on: on != 0, is_done: answer == [DONE] });
        Some((Control { memory, base, sent, asked: is_under_way.then_some(on != 0) }, known))
    }

    /// Whether a command is under way.
    pub fn is_busy(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks for all frames, or for those that are for us; the device is to be notified then. No
    /// command may be under way.
    pub fn ask_promiscuous(&mut self, on: bool) {
        let [class, command] = PROMISCUOUS;
        // First, so that no successor takes the last answer for one to this.
        self.write(ANSWER_OFFSET, &[NO_ANSWER]);
        self.write(COMMAND_OFFSET, &[class, command, on.into()]);
        // Entries are all zero: descriptor 0.
        self.sent = self.sent.wrapping_add(1);
        fence(Ordering::SeqCst);
        // In bounds: checked when the queue was made.
        let _ = self.memory.store_u16(self.base + AVAILABLE_OFFSET + 2, self.sent);
        fence(Ordering::SeqCst);
        self.asked = Some(on);
    }

    /// The end of the command under way: what was asked for, and whether the device does it.
    pub fn take(&mut self) -> Option<Told> {
        self.asked?;
        let mut answer = [NO_ANSWER];
        // In bounds: checked when the queue was made.
        if self.memory.load_u16(self.base + USED_OFFSET + 2) != Ok(self.sent) {
            return None;
        }
        fence(Ordering::SeqCst);
        let _ = self.memory.read(self.base + ANSWER_OFFSET, &mut answer);
        self.asked.take().map(|on| Told { on, is_done: answer == [DONE] })
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        // In bounds: checked when the queue was made.
        let _ = self.memory.write(self.base + offset, bytes);
    }
}

/// Where a device sees the queue at `base` of a region that it sees at `physical`.
pub fn addresses(base: usize, physical: u64) -> QueueAddresses {
    let descriptors = physical + base as u64;
    QueueAddresses {
        descriptors,
        available: descriptors + AVAILABLE_OFFSET as u64,
        used: descriptors + USED_OFFSET as u64,
    }
}

/// The two descriptors of a queue that the device sees at `at`.
fn descriptors(at: u64) -> [[u8; 16]; 2] {
    let describe = |physical: u64, bytes: u32, flags: u16| {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&physical.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        descriptor[14] = 1;
        descriptor
    };
    [describe(at + COMMAND_OFFSET as u64, COMMAND_BYTES, NEXT), describe(at + ANSWER_OFFSET as u64, 1, WRITE)]
}
