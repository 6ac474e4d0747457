//! Bulk memory: bytes that another component may read and write at the same time.

use alloc::rc::Rc;
use core::any::Any;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

#[cfg(target_arch = "x86_64")]
#[path = "copy_x86_64.rs"]
mod copy;
#[cfg(not(target_arch = "x86_64"))]
#[path = "copy_portable.rs"]
mod copy;

/// A part of a channel's bulk area, as it travels in messages. A claim of the peer until
/// [`Bulk::window`] has checked it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkSpan {
    /// Bytes from the start of the bulk area.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

/// The span does not lie in the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

/// A window of shared memory. Bytes are copied in and out, never referenced: the other side may
/// change them at any time, so what was checked must have been copied before.
#[derive(Clone)]
pub struct Bulk {
    start: NonNull<u8>,
    bytes: usize,
    /// Keeps the memory mapped.
    _keeper: Option<Rc<dyn Any>>,
}

impl Bulk {
    /// # Safety
    /// `bytes` at `start` must be readable and writable and used as shared memory only, for as long
    /// as `keeper` lives or, without one, for ever.
    pub unsafe fn at(start: NonNull<u8>, bytes: usize, keeper: Option<Rc<dyn Any>>) -> Bulk {
        Bulk { start, bytes, _keeper: keeper }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// No bytes at all?
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where it is mapped, for those who build references for devices or other cores from it.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The window as words that both sides reach at once. `None`: it is not there for ever, not
    /// aligned, or empty.
    pub fn words(&self) -> Option<&'static [AtomicU64]> {
        let start = self.start.cast::<AtomicU64>();
        let count = self.bytes / size_of::<AtomicU64>();
        let is_right = self._keeper.is_none() && start.is_aligned() && count > 0;
        // SAFETY: without a keeper it is mapped for ever; so many aligned words lie in it, and all
        // that is in it is shared memory, of which atomics may have any value.
        is_right.then(|| unsafe { slice::from_raw_parts(start.as_ptr(), count) })
    }

    /// Copies out.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        self.check(offset, into.len())?;
        // SAFETY: the source lies in the window, the destination is a slice of ours; the window is
        // shared memory only, so they are apart.
        unsafe { copy::copy(into.as_mut_ptr(), self.start.as_ptr().add(offset), into.len()) };
        Ok(())
    }

    /// Copies in.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), OutOfBounds> {
        self.check(offset, from.len())?;
        // SAFETY: as `read`, the other way round.
        unsafe { copy::copy(self.start.as_ptr().add(offset), from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Reads a word at once: never half of what the other side, or a device, is writing. Whatever
    /// was written before that word is seen after it. `OutOfBounds` if it is not aligned, too.
    pub fn load_u16(&self, offset: usize) -> Result<u16, OutOfBounds> {
        let place = self.word(offset)?;
        // SAFETY: `word` looked: it lies in the window and is aligned; all share it as atomics.
        Ok(unsafe { AtomicU16::from_ptr(place) }.load(Ordering::Acquire))
    }

    /// Writes a word atomically: a reader sees the old or the new one, also after our death, and
    /// sees before it what was written before.
    pub fn store_u16(&self, offset: usize, value: u16) -> Result<(), OutOfBounds> {
        let place = self.word::<u16>(offset)?;
        // SAFETY: as `load_u16`.
        unsafe { AtomicU16::from_ptr(place) }.store(value, Ordering::Release);
        Ok(())
    }

    /// As [`load_u16`](Self::load_u16).
    pub fn load_u32(&self, offset: usize) -> Result<u32, OutOfBounds> {
        let place = self.word(offset)?;
        // SAFETY: as `load_u16`.
        Ok(unsafe { AtomicU32::from_ptr(place) }.load(Ordering::Acquire))
    }

    /// As [`store_u16`](Self::store_u16).
    pub fn store_u32(&self, offset: usize, value: u32) -> Result<(), OutOfBounds> {
        let place = self.word::<u32>(offset)?;
        // SAFETY: as `load_u16`.
        unsafe { AtomicU32::from_ptr(place) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Where an aligned word lies.
    fn word<T>(&self, offset: usize) -> Result<*mut T, OutOfBounds> {
        self.check(offset, size_of::<T>())?;
        // SAFETY: it lies in the window.
        let place = unsafe { self.start.as_ptr().add(offset) }.cast::<T>();
        if place.is_aligned() { Ok(place) } else { Err(OutOfBounds) }
    }

    /// Copies between two windows, also overlapping ones of which the source lies higher.
    pub fn copy_from(
        &self,
        offset: usize,
        source: &Bulk,
        source_offset: usize,
        bytes: usize,
    ) -> Result<(), OutOfBounds> {
        self.check(offset, bytes)?;
        source.check(source_offset, bytes)?;
        // SAFETY: both lie in their windows; the copy goes upwards byte by byte in effect.
        unsafe { copy::copy(self.start.as_ptr().add(offset), source.start.as_ptr().add(source_offset), bytes) };
        Ok(())
    }

    /// The part that a span names.
    pub fn window(&self, span: BulkSpan) -> Result<Bulk, OutOfBounds> {
        self.part(span.offset as usize, span.length as usize)
    }

    /// `bytes` from `offset` on.
    pub fn part(&self, offset: usize, bytes: usize) -> Result<Bulk, OutOfBounds> {
        self.check(offset, bytes)?;
        // SAFETY: checked to lie in the window.
        let start = unsafe { self.start.add(offset) };
        Ok(Bulk { start, bytes, _keeper: self._keeper.clone() })
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), OutOfBounds> {
        let end = offset.checked_add(bytes).ok_or(OutOfBounds)?;
        if end <= self.bytes { Ok(()) } else { Err(OutOfBounds) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many bytes, zero, that are there for ever.
    fn area(bytes: usize) -> Bulk {
        let words = std::vec![0_u64; bytes.div_ceil(8)].leak();
        // SAFETY: they are leaked, and nobody else has them.
        unsafe { Bulk::at(NonNull::from(words).cast(), bytes, None) }
    }

    fn bytes<const N: usize>(area: &Bulk, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        area.read(offset, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn an_area_that_stays_has_as_many_words_as_are_whole() {
        let whole = area(20);
        let words = whole.words().unwrap();
        assert_eq!(words.len(), 2);
        words[1].store(0x0102_0304_0506_0708, Ordering::Relaxed);
        assert_eq!(bytes(&whole, 8), [8, 7, 6, 5, 4, 3, 2, 1]);
        let last = whole.part(8, 12).unwrap();
        assert_eq!(last.words().unwrap()[0].load(Ordering::Relaxed), 0x0102_0304_0506_0708);
        let askew = whole.part(4, 16).unwrap();
        assert!([area(0), area(7), askew].iter().all(|area| area.words().is_none()));
        let keeper: Rc<dyn Any> = Rc::new(());
        // SAFETY: as `area`; the keeper lives as long as anything.
        let kept = unsafe { Bulk::at(whole.start, 20, Some(keeper)) };
        assert!(kept.words().is_none(), "it may go");
    }

    #[test]
    fn a_small_word_is_aligned_and_within() {
        let area = area(10);
        area.store_u16(2, 0x0102).unwrap();
        area.store_u32(4, 0x0304_0506).unwrap();
        assert_eq!(bytes(&area, 0), [0, 0, 2, 1, 6, 5, 4, 3, 0, 0]);
        assert_eq!([2, 4, 8].map(|offset| area.load_u16(offset)), [Ok(0x0102), Ok(0x0506), Ok(0)]);
        assert_eq!([0, 4].map(|offset| area.load_u32(offset)), [Ok(0x0102_0000), Ok(0x0304_0506)]);
        for offset in [1, 10, usize::MAX - 1, usize::MAX] {
            assert_eq!((area.load_u16(offset), area.store_u16(offset, 9)), (Err(OutOfBounds), Err(OutOfBounds)));
        }
        for offset in [2, 8, usize::MAX - 3] {
            assert_eq!((area.load_u32(offset), area.store_u32(offset, 9)), (Err(OutOfBounds), Err(OutOfBounds)));
        }
    }

    #[test]
    fn nothing_leaves_the_area() {
        let (from, to) = (area(8), area(8));
        assert_eq!((from.len(), from.is_empty(), area(0).is_empty()), (8, false, true));
        assert_eq!(from.part(3, 5).unwrap().address(), from.address() + 3);
        from.write(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        to.copy_from(1, &from, 2, 6).unwrap();
        assert_eq!(bytes(&to, 0), [0, 3, 4, 5, 6, 7, 8, 0]);
        from.copy_from(0, &from, 1, 7).unwrap();
        assert_eq!(bytes(&from, 0), [2, 3, 4, 5, 6, 7, 8, 8]);
        for (offset, length) in [(0, 9), (8, 1), (9, 0), (usize::MAX, 2), (2, usize::MAX)] {
            let length_here = length.min(9);
            assert_eq!(from.part(offset, length).err(), Some(OutOfBounds));
            assert_eq!(from.read(offset, &mut [0; 9][..length_here]), Err(OutOfBounds));
            assert_eq!(from.write(offset, &[0; 9][..length_here]), Err(OutOfBounds));
            assert_eq!(from.copy_from(offset, &to, 0, length), Err(OutOfBounds));
            assert_eq!(from.copy_from(0, &to, offset, length), Err(OutOfBounds));
        }
        let window = |offset, length| from.window(BulkSpan { offset, length }).map(|window| window.len());
        assert_eq!([window(0, 8), window(8, 0), window(7, 2)], [Ok(8), Ok(0), Err(OutOfBounds)]);
    }
}
