//! The number under which IP gave a frame to the driver. It stands in the first bytes of the
//! frame's buffer, so that it outlives IP, and goes with the packet: writing another packet there
//! takes it away.

use crate::{HEADROOM, Memory, OutOfBounds, Pool, Span};

/// Bytes of a number in its buffer.
const BYTES: usize = 6;

/// A frame among those given to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// A life of the device from one reset to the next; 0 is none.
    pub epoch: u32,
    /// Frames before it in this epoch, round and round.
    pub number: u16,
}

impl Number {
    /// Whether the frame comes before `next`, the next one that the device gets. False if that is
    /// of another epoch: nobody knows.
    pub fn is_before(self, next: Number) -> bool {
        self.epoch == next.epoch && next.number.wrapping_sub(self.number).cast_signed() > 0
    }
}

impl<M: Memory> Pool<M> {
    /// Writes a packet to be sent behind the headroom of `buffer`; it has no number yet.
    pub fn write_packet(&self, buffer: u16, packet: &[u8]) -> Result<Span, OutOfBounds> {
        self.set_number(buffer, None)?;
        self.write(buffer, HEADROOM, packet)
    }

    /// Writes the number of the packet in `buffer`.
    pub fn set_number(&self, buffer: u16, number: Option<Number>) -> Result<(), OutOfBounds> {
        let mut bytes = [0; BYTES];
        if let Some(Number { epoch, number }) = number {
            bytes[..4].copy_from_slice(&epoch.to_le_bytes());
            bytes[4..].copy_from_slice(&number.to_le_bytes());
        }
        self.write(buffer, 0, &bytes).map(drop)
    }

    /// The number of the packet in `buffer`.
    pub fn number(&self, buffer: u16) -> Option<Number> {
        let mut bytes = [0; BYTES];
        self.read(Span { buffer, offset: 0, length: BYTES as u16 }, &mut bytes).ok()?;
        let [a, b, c, d, e, f] = bytes;
        let number = Number { epoch: u32::from_le_bytes([a, b, c, d]), number: u16::from_le_bytes([e, f]) };
        (number.epoch != 0).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::RefCell;

    #[test]
    fn a_number_stands_before_its_packet_and_goes_with_it() {
        let pool = Pool::new(Rc::new(RefCell::new(alloc::vec![0; crate::POOL_BYTES])));
        let number = Some(Number { epoch: 0x0102_0304, number: 0xfffe });
        let span = pool.write_packet(40, b"packet").unwrap();
        pool.set_number(40, number).unwrap();
        // What the device and the card's driver write in front: 12 and 14 bytes.
        pool.write(40, HEADROOM - 26, &[0xff; 26]).unwrap();
        assert_eq!((pool.number(40), pool.number(41)), (number, None));
        assert_eq!(pool.read(span, &mut [0; 99]).unwrap(), b"packet");
        pool.write_packet(40, b"another").unwrap();
        assert_eq!(pool.number(40), None);
        assert_eq!((pool.set_number(crate::BUFFERS, None), pool.number(crate::BUFFERS)), (Err(OutOfBounds), None));
    }

    #[test]
    fn numbers_go_round_and_those_of_another_epoch_say_nothing() {
        let at = |epoch, number| Number { epoch, number };
        assert!(at(7, 4).is_before(at(7, 5)) && at(7, u16::MAX).is_before(at(7, 0)));
        assert!(!at(7, 5).is_before(at(7, 5)) && !at(7, 0).is_before(at(7, u16::MAX)));
        assert!(!at(7, 4).is_before(at(8, 5)));
    }
}
