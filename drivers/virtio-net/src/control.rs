//! The control queue (virtio 1.2, section 5.1.6.5): settings of the device, one command at a time.
//!
//! Two descriptors: the command, which the device reads, and its answer, a byte which it writes.
//! What the device writes is decoded: it can make a command look refused or done, nothing else.

use core::sync::atomic::{Ordering, fence};
use packet::{Memory, OutOfBounds};

use crate::transport::QueueAddresses;

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
/// Class and command of section 5.1.6.5.1: receive all frames, whoever they are for.
const PROMISCUOUS: [u8; 2] = [0, 0];
/// The answer to a command that was carried out.
const DONE: u8 = 0;
/// What no device answers.
const NO_ANSWER: u8 = 0xff;

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
        queue.describe(0, at + COMMAND_OFFSET as u64, COMMAND_BYTES, NEXT);
        queue.describe(1, at + ANSWER_OFFSET as u64, 1, WRITE);
        Ok(queue)
    }

    /// Where a device sees it, if it sees the region at `physical`.
    pub fn addresses(&self, physical: u64) -> QueueAddresses {
        let descriptors = physical + self.base as u64;
        QueueAddresses {
            descriptors,
            available: descriptors + AVAILABLE_OFFSET as u64,
            used: descriptors + USED_OFFSET as u64,
        }
    }

    fn describe(&self, number: usize, physical: u64, bytes: u32, flags: u16) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&physical.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        descriptor[14] = 1;
        self.write(16 * number, &descriptor);
    }

    /// Whether a command is under way.
    pub fn is_busy(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks for all frames, or for those that are for us; the device is to be notified then. No
    /// command may be under way.
    pub fn ask_promiscuous(&mut self, on: bool) {
        let [class, command] = PROMISCUOUS;
        self.write(COMMAND_OFFSET, &[class, command, on.into()]);
        self.write(ANSWER_OFFSET, &[NO_ANSWER]);
        // Entries are all zero: descriptor 0.
        self.sent = self.sent.wrapping_add(1);
        fence(Ordering::SeqCst);
        self.write(AVAILABLE_OFFSET + 2, &self.sent.to_le_bytes());
        fence(Ordering::SeqCst);
        self.asked = Some(on);
    }

    /// The end of the command under way: what was asked for, and whether the device does it.
    pub fn take(&mut self) -> Option<(bool, bool)> {
        self.asked?;
        let mut used = [0; 2];
        let mut answer = [NO_ANSWER];
        // In bounds: checked when the queue was made.
        let _ = self.memory.read(self.base + USED_OFFSET + 2, &mut used);
        if u16::from_le_bytes(used) != self.sent {
            return None;
        }
        fence(Ordering::SeqCst);
        let _ = self.memory.read(self.base + ANSWER_OFFSET, &mut answer);
        self.asked.take().map(|on| (on, answer == [DONE]))
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        // In bounds: checked when the queue was made.
        let _ = self.memory.write(self.base + offset, bytes);
    }
}
