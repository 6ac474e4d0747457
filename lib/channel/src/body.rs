//! Message bodies: postcard, and how they are kept while they wait.

use alloc::boxed::Box;

use postcard::ser_flavors::Flavor;
use ring::{BODY_BYTES, Broken, Buffer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes kept without an allocation: the body of a one-slot message.
const SMALL: usize = 48;

/// A body at rest.
pub(crate) enum Body {
    Small([u8; SMALL], u8),
    Large(Box<[u8]>),
}

impl Body {
    pub fn new(bytes: &[u8]) -> Body {
        if bytes.len() > SMALL {
            return Body::Large(bytes.into());
        }
        let mut small = [0; SMALL];
        small[..bytes.len()].copy_from_slice(bytes);
        Body::Small(small, bytes.len() as u8)
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Small(bytes, length) => &bytes[..*length as usize],
            Body::Large(bytes) => bytes,
        }
    }
}

/// Writes a value into the buffer; `None` if it is too long for a message.
pub fn encode<'b>(value: &impl Serialize, buffer: &'b mut [u8; BODY_BYTES]) -> Option<&'b [u8]> {
    let length = postcard::serialize_with_flavor(value, Into { buffer, length: 0 }).ok()?;
    buffer.get(..length)
}

/// Where a message is encoded. Most of what is put is one byte, for which no copy is called.
struct Into<'b> {
    buffer: &'b mut [u8; BODY_BYTES],
    length: usize,
}

impl Flavor for Into<'_> {
    type Output = usize;

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        *self.buffer.get_mut(self.length).ok_or(postcard::Error::SerializeBufferFull)? = byte;
        self.length += 1;
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if let [byte] = bytes {
            return self.try_push(*byte);
        }
        let place = self.buffer.get_mut(self.length..).and_then(|left| left.get_mut(..bytes.len()));
        place.ok_or(postcard::Error::SerializeBufferFull)?.copy_from_slice(bytes);
        self.length += bytes.len();
        Ok(())
    }

    fn finalize(self) -> postcard::Result<usize> {
        Ok(self.length)
    }
}

/// Reads a value that must fill the bytes exactly.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Broken> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Broken),
    }
}

/// A buffer on the heap; made once for each side.
pub(crate) fn buffer() -> Box<Buffer> {
    Box::default()
}
