//! A pool seen through a memory that only copies.

use crate::{BUFFER_BYTES, BUFFERS, Span};

/// A span or range that leaves its buffer. The peer who said it broke the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

/// Memory that others may change at any time; on the target a mapped region, in tests a vector.
pub trait Memory {
    /// Copies bytes out.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds>;
    /// Copies bytes in.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds>;

    /// Reads an aligned word that a device or another component may write meanwhile: all of it is
    /// of one time, and whatever was written before it is seen after it. Memory that nobody else
    /// has at the same time need not do better than this.
    fn load_u16(&self, offset: usize) -> Result<u16, OutOfBounds> {
        let mut bytes = [0; 2];
        self.read(offset, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Writes an aligned word for them: old or new, also after our death, and after all that was
    /// written before.
    fn store_u16(&self, offset: usize, value: u16) -> Result<(), OutOfBounds> {
        self.write(offset, &value.to_le_bytes())
    }

    /// As [`load_u16`](Self::load_u16).
    fn load_u32(&self, offset: usize) -> Result<u32, OutOfBounds> {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// As [`store_u16`](Self::store_u16).
    fn store_u32(&self, offset: usize, value: u32) -> Result<(), OutOfBounds> {
        self.write(offset, &value.to_le_bytes())
    }
}

impl<M: Memory + ?Sized> Memory for alloc::rc::Rc<M> {
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        (**self).read(offset, bytes)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        (**self).write(offset, bytes)
    }
    fn load_u16(&self, offset: usize) -> Result<u16, OutOfBounds> {
        (**self).load_u16(offset)
    }
    fn store_u16(&self, offset: usize, value: u16) -> Result<(), OutOfBounds> {
        (**self).store_u16(offset, value)
    }
    fn load_u32(&self, offset: usize) -> Result<u32, OutOfBounds> {
        (**self).load_u32(offset)
    }
    fn store_u32(&self, offset: usize, value: u32) -> Result<(), OutOfBounds> {
        (**self).store_u32(offset, value)
    }
}

impl Memory for channel::Bulk {
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        channel::Bulk::read(self, offset, bytes).map_err(|_| OutOfBounds)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        channel::Bulk::write(self, offset, bytes).map_err(|_| OutOfBounds)
    }
    fn load_u16(&self, offset: usize) -> Result<u16, OutOfBounds> {
        channel::Bulk::load_u16(self, offset).map_err(|_| OutOfBounds)
    }
    fn store_u16(&self, offset: usize, value: u16) -> Result<(), OutOfBounds> {
        channel::Bulk::store_u16(self, offset, value).map_err(|_| OutOfBounds)
    }
    fn load_u32(&self, offset: usize) -> Result<u32, OutOfBounds> {
        channel::Bulk::load_u32(self, offset).map_err(|_| OutOfBounds)
    }
    fn store_u32(&self, offset: usize, value: u32) -> Result<(), OutOfBounds> {
        channel::Bulk::store_u32(self, offset, value).map_err(|_| OutOfBounds)
    }
}

/// Memory of this process alone, shared by its parts: for tests.
impl Memory for core::cell::RefCell<alloc::vec::Vec<u8>> {
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let end = offset.checked_add(bytes.len()).ok_or(OutOfBounds)?;
        bytes.copy_from_slice(self.borrow().get(offset..end).ok_or(OutOfBounds)?);
        Ok(())
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let end = offset.checked_add(bytes.len()).ok_or(OutOfBounds)?;
        self.borrow_mut().get_mut(offset..end).ok_or(OutOfBounds)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// One pool of [`BUFFERS`] buffers.
#[derive(Clone)]
pub struct Pool<M> {
    memory: M,
}

impl<M: Memory> Pool<M> {
    /// A pool at the start of `memory`, which should have [`crate::POOL_BYTES`]; of a shorter one
    /// the last buffers are out of bounds.
    pub fn new(memory: M) -> Pool<M> {
        Pool { memory }
    }

    /// Does the span lie in one buffer?
    pub fn check(span: Span) -> Result<Span, OutOfBounds> {
        let end = usize::from(span.offset) + usize::from(span.length);
        if span.buffer < BUFFERS && end <= BUFFER_BYTES { Ok(span) } else { Err(OutOfBounds) }
    }

    /// Copies the span's bytes to the start of `bytes`, as many as fit; gives that part.
    pub fn read<'a>(&self, span: Span, bytes: &'a mut [u8]) -> Result<&'a mut [u8], OutOfBounds> {
        let span = Self::check(span)?;
        let length = bytes.len().min(usize::from(span.length));
        let bytes = &mut bytes[..length];
        self.memory.read(offset_of(span), bytes)?;
        Ok(bytes)
    }

    /// Copies `bytes` into `buffer` at `offset` and gives the span they fill.
    pub fn write(&self, buffer: u16, offset: usize, bytes: &[u8]) -> Result<Span, OutOfBounds> {
        let number = |value: usize| u16::try_from(value).map_err(|_| OutOfBounds);
        let span = Self::check(Span { buffer, offset: number(offset)?, length: number(bytes.len())? })?;
        self.memory.write(offset_of(span), bytes)?;
        Ok(span)
    }
}

/// Where a checked span begins in its pool.
pub fn offset_of(span: Span) -> usize {
    usize::from(span.buffer) * BUFFER_BYTES + usize::from(span.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::RefCell;

    #[test]
    fn bytes_come_back_and_nothing_leaves_its_buffer() {
        // The memory goes on behind the pool.
        let pool = Pool::new(Rc::new(RefCell::new(alloc::vec![0; crate::POOL_BYTES + BUFFER_BYTES])));
        let span = pool.write(255, BUFFER_BYTES - 3, b"end").unwrap();
        let mut bytes = [0; 8];
        assert_eq!(pool.read(span, &mut bytes).unwrap(), b"end");
        assert_eq!(pool.write(255, BUFFER_BYTES - 2, b"end"), Err(OutOfBounds));
        assert_eq!(pool.write(256, 0, b"end"), Err(OutOfBounds));
        for bad in [
            Span { buffer: 256, offset: 0, length: 1 },
            Span { buffer: 0, offset: 2047, length: 2 },
            Span { buffer: u16::MAX, offset: u16::MAX, length: u16::MAX },
        ] {
            assert_eq!(pool.read(bad, &mut bytes).err(), Some(OutOfBounds));
        }
    }
}
