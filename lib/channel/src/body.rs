//! Message bodies: postcard, and how they are kept while they wait.

use alloc::boxed::Box;

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
    postcard::to_slice(value, buffer).ok().map(|bytes| &*bytes)
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
