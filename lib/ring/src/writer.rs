//! The writing side.

use crate::sync::{AtomicU64, Ordering, fence};
use crate::{BODY_BYTES, Broken, Header, SLOT_BODY_BYTES, SLOT_WORDS, Slot, slot, slots_of, stamp};

/// Why a message was not sent; nothing of it is visible to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No room until the reader has read. Remedy: later again.
    Full,
    /// Longer than any message may be. Remedy: send it as bulk.
    TooLong,
    /// The reader's index makes no sense.
    Broken,
}

impl From<Broken> for Refused {
    fn from(_: Broken) -> Refused {
        Refused::Broken
    }
}

/// A word of the last bytes of a message, fewer than eight, and zeros.
#[inline]
fn word_of(mut rest: &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    if let Some((four, left)) = rest.split_first_chunk() {
        (value, shift, rest) = (u64::from(u32::from_le_bytes(*four)), 32, left);
    }
    if let Some((two, left)) = rest.split_first_chunk() {
        (value, shift, rest) = (value | u64::from(u16::from_le_bytes(*two)) << shift, shift + 16, left);
    }
    if let [byte, ..] = rest { value | u64::from(*byte) << shift } else { value }
}

/// Where the writer stands. All it trusts is in here; shared memory is passed to each call.
pub struct Writer {
    generation: u32,
    /// Position of the next slot to write.
    next: u32,
    /// Reader's position as last looked up.
    consumed: u32,
}

impl Writer {
    /// At the start of a generation (≥ 1).
    pub fn new(generation: u32) -> Writer {
        // The reader of an older generation, still in the middle of a copy, must not see new words
        // and then find the old generation in the header (see `Reader::read`): pairs with the
        // acquire fence there.
        fence(Ordering::Release);
        Writer { generation, next: 0, consumed: 0 }
    }

    /// Position after the last message.
    #[inline]
    pub fn position(&self) -> u32 {
        self.next
    }

    /// Is there a message that the reader has not taken? `index` is the reader's index word.
    #[inline]
    pub fn is_unread(&self, index: &AtomicU64) -> bool {
        let read = index.load(Ordering::Relaxed);
        // Before the first message the word may be of an older generation, which tells nothing.
        let is_told = self.next != 0 || (read >> 32) as u32 == self.generation;
        is_told && read != stamp(self.generation, self.next)
    }

    /// Sends a message. `index` is the reader's index word.
    pub fn write(&mut self, slots: &[Slot], index: &AtomicU64, header: Header, body: &[u8]) -> Result<(), Refused> {
        if body.len() > BODY_BYTES {
            return Err(Refused::TooLong);
        }
        let is_short = body.len() <= SLOT_BODY_BYTES;
        let count = if is_short { 1 } else { slots_of(body.len()) };
        if self.room(slots) < count {
            self.look_up(slots, index)?;
            if self.room(slots) < count {
                return Err(Refused::Full);
            }
        }
        let header = header.encode(body.len());
        if is_short {
            self.put_short(slots, header, body);
        } else {
            self.put(slots, header, body);
        }
        // All but the first stamp, then the first with Release: the message appears whole.
        for offset in 1..count as u32 {
            let position = self.next.wrapping_add(offset);
            slot(slots, position).stamp.store(stamp(self.generation, position), Ordering::Relaxed);
        }
        slot(slots, self.next).stamp.store(stamp(self.generation, self.next), Ordering::Release);
        self.next = self.next.wrapping_add(count as u32);
        Ok(())
    }

    fn room(&self, slots: &[Slot]) -> usize {
        slots.len() - self.next.wrapping_sub(self.consumed) as usize
    }

    /// Reads the reader's index. One of another generation counts as "nothing read yet".
    fn look_up(&mut self, slots: &[Slot], index: &AtomicU64) -> Result<(), Broken> {
        // Acquire: the reader's copies out of the slots happened before, so they may be
        // overwritten.
        let word = index.load(Ordering::Acquire);
        if (word >> 32) as u32 != self.generation {
            return Ok(());
        }
        let consumed = word as u32;
        if self.next.wrapping_sub(consumed) as usize > slots.len() {
            return Err(Broken);
        }
        self.consumed = consumed;
        Ok(())
    }

    /// Fills the payload words of the next slot.
    fn put_short(&self, slots: &[Slot], header: u64, body: &[u8]) {
        let [first, others @ ..] = &slot(slots, self.next).words;
        first.store(header, Ordering::Relaxed);
        let (whole, rest) = body.as_chunks::<8>();
        for (word, bytes) in others.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if let (false, Some(word)) = (rest.is_empty(), others.get(whole.len())) {
            word.store(word_of(rest), Ordering::Relaxed);
        }
    }

    /// Fills payload words from the next slot on.
    fn put(&self, slots: &[Slot], header: u64, body: &[u8]) {
        let mut position = self.next;
        let mut line = slot(slots, position);
        line.words[0].store(header, Ordering::Relaxed);
        let mut word = 1;
        let mut store = |value: u64| {
            if word == SLOT_WORDS {
                word = 0;
                position = position.wrapping_add(1);
                line = slot(slots, position);
            }
            line.words[word].store(value, Ordering::Relaxed);
            word += 1;
        };
        let (whole, rest) = body.as_chunks::<8>();
        for bytes in whole {
            store(u64::from_le_bytes(*bytes));
        }
        if !rest.is_empty() {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            store(u64::from_le_bytes(bytes));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_before_positions_begin_anew_is_unread_until_it_was_read() {
        let writer = Writer { generation: 2, next: 0, consumed: u32::MAX };
        let is_unread = |generation, position| writer.is_unread(&AtomicU64::new(stamp(generation, position)));
        assert!(is_unread(2, u32::MAX) && !is_unread(2, 0));
        // Of a reader that has not begun, nothing was sent.
        assert!(!is_unread(1, 7));
    }
}
