//! The reading side.

use crate::sync::{AtomicU64, Ordering, fence};
use crate::{BODY_BYTES, Broken, Header, SLOT_BODY_BYTES, SLOT_WORDS, Slot, slot, slots_of, stamp};

/// Room for the body of any message.
pub struct Buffer(pub [u8; BODY_BYTES]);

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer([0; BODY_BYTES])
    }
}

/// Where the reader stands. All it trusts is in here; shared memory is passed to each call.
pub struct Reader {
    generation: u32,
    /// Position of the next slot to read.
    next: u32,
}

impl Reader {
    /// At the start of a generation; announces it in the index word.
    pub fn new(generation: u32, index: &AtomicU64) -> Reader {
        // Relaxed: a writer that sees it has no slot more than before it did, as it takes the index
        // of another generation for "nothing read yet". So nothing is to have happened before it.
        index.store(stamp(generation, 0), Ordering::Relaxed);
        Reader { generation, next: 0 }
    }

    /// Is a message there?
    #[inline]
    pub fn ready(&self, slots: &[Slot]) -> bool {
        slot(slots, self.next).stamp.load(Ordering::Acquire) == stamp(self.generation, self.next)
    }

    /// Copies the next message out, if there is one, and frees its slots: header and number of body
    /// bytes in `buffer`.
    ///
    /// The caller must look at the channel's generation afterwards and drop the message if it
    /// changed: a restarted writer may have begun to overwrite the slots during the copy. The fence
    /// at the end makes that look decisive.
    #[inline]
    pub fn read(
        &mut self,
        slots: &[Slot],
        index: &AtomicU64,
        buffer: &mut Buffer,
    ) -> Result<Option<(Header, usize)>, Broken> {
        if self.ready(slots) { self.take(slots, index, buffer).map(Some) } else { Ok(None) }
    }

    fn take(&mut self, slots: &[Slot], index: &AtomicU64, buffer: &mut Buffer) -> Result<(Header, usize), Broken> {
        let first = slot(slots, self.next);
        let (header, body_bytes) = Header::decode(first.words[0].load(Ordering::Relaxed))?;
        let count = if body_bytes <= SLOT_BODY_BYTES {
            let words = first.words[1..].iter().take(body_bytes.div_ceil(8));
            for (bytes, word) in buffer.0.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *bytes = word.load(Ordering::Relaxed).to_le_bytes();
            }
            1
        } else {
            let count = slots_of(body_bytes);
            self.check(slots, count)?;
            self.copy(slots, body_bytes, buffer);
            count
        };
        self.next = self.next.wrapping_add(count as u32);
        fence(Ordering::Acquire);
        // Release: the copy is done before the writer may reuse the slots.
        index.store(stamp(self.generation, self.next), Ordering::Release);
        Ok((header, body_bytes))
    }

    /// Are all slots of a message there?
    fn check(&self, slots: &[Slot], count: usize) -> Result<(), Broken> {
        if count > slots.len() {
            return Err(Broken);
        }
        for offset in 1..count as u32 {
            let position = self.next.wrapping_add(offset);
            if slot(slots, position).stamp.load(Ordering::Relaxed) != stamp(self.generation, position) {
                return Err(Broken);
            }
        }
        Ok(())
    }

    fn copy(&self, slots: &[Slot], body_bytes: usize, buffer: &mut Buffer) {
        let mut position = self.next;
        let mut line = slot(slots, position);
        let mut word = 1;
        let words = body_bytes.div_ceil(8);
        for bytes in buffer.0.as_chunks_mut::<8>().0.iter_mut().take(words) {
            if word == SLOT_WORDS {
                word = 0;
                position = position.wrapping_add(1);
                line = slot(slots, position);
            }
            *bytes = line.words[word].load(Ordering::Relaxed).to_le_bytes();
            word += 1;
        }
    }
}
