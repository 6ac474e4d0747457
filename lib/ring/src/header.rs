//! The first word of a message.

use crate::{BODY_BYTES, Broken};

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Client to server; answered by a Reply or Cancelled of the same correlation.
    Request = 1,
    /// Server to client.
    Reply = 2,
    /// Server to client, unasked.
    Event = 3,
    /// Client to server: the request of that correlation is no longer wanted.
    Cancel = 4,
    /// Server to client: the request ended without a reply.
    Cancelled = 5,
    /// Client to server, never answered.
    OneWay = 6,
}

impl Kind {
    fn decode(value: u64) -> Result<Kind, Broken> {
        Ok(match value {
            1 => Kind::Request,
            2 => Kind::Reply,
            3 => Kind::Event,
            4 => Kind::Cancel,
            5 => Kind::Cancelled,
            6 => Kind::OneWay,
            _ => return Err(Broken),
        })
    }
}

/// Kind in bits 0..4, body bytes in 4..16, operation in 16..32, correlation in 32..64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Which operation or event of the contract.
    pub operation: u16,
    /// Which call it belongs to.
    pub correlation: u32,
}

impl Header {
    /// The word. `body_bytes` is at most [`BODY_BYTES`].
    pub(crate) const fn encode(self, body_bytes: usize) -> u64 {
        self.kind as u64 | (body_bytes as u64) << 4 | (self.operation as u64) << 16 | (self.correlation as u64) << 32
    }

    /// Header and number of body bytes.
    pub(crate) fn decode(word: u64) -> Result<(Header, usize), Broken> {
        let body_bytes = (word >> 4 & 0xfff) as usize;
        if body_bytes > BODY_BYTES {
            return Err(Broken);
        }
        Ok((
            Header {
                kind: Kind::decode(word & 0xf)?,
                operation: (word >> 16) as u16,
                correlation: (word >> 32) as u32,
            },
            body_bytes,
        ))
    }
}
