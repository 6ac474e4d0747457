//! Names of files as text: on Linux they are bytes, here they are strings.
//!
//! Each byte that belongs to no UTF-8 becomes a character of its own, U+EF80 to U+EFFF, which are
//! for private use and used so by MirBSD; such characters in a name are taken for bytes too. So
//! every name has one text, no two names have the same, and a name that is UTF-8 (but for those
//! characters) is its own text.

use alloc::string::String;
use alloc::vec::Vec;

/// The character of byte 0; those of 0x80 and above are used.
const FIRST: u32 = 0xef00;

/// A text has at most so many bytes for each of its name's.
pub const GROWTH_MAX: usize = 3;

fn byte_of(character: char) -> Option<u8> {
    u8::try_from(u32::from(character).checked_sub(FIRST)?).ok().filter(|byte| *byte >= 0x80)
}

/// Gives a name's text.
pub fn to_text(name: &[u8]) -> String {
    let mut text = String::new();
    let push_byte = |text: &mut String, byte: u8| text.extend(char::from_u32(FIRST + u32::from(byte)));
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if byte_of(character).is_some() {
                character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(&mut text, byte));
            } else {
                text.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut text, *byte));
    }
    text
}

/// Gives the name whose text it is.
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    for character in text.chars() {
        match byte_of(character) {
            Some(byte) => name.push(byte),
            None => name.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    #[test]
    fn every_name_has_a_text_of_its_own() {
        let mut names: Vec<Vec<u8>> = vec![b"".into(), b"plain".into(), "f\u{fc}r".into(), b"f\xfcr".into()];
        names.extend([vec![0xff, 0xfe], vec![0xee, 0xbe, 0x80], "\u{ef80}\u{efff}".into(), "\u{ef7f}\u{f000}".into()]);
        names.extend((1..=255).flat_map(|one: u8| [0x41, 0x80, 0xc3, 0xf4].map(|other| vec![one, other])));
        let mut texts = BTreeSet::new();
        for name in &names {
            let text = to_text(name);
            assert_eq!(&to_bytes(&text), name);
            assert!(text.len() <= GROWTH_MAX * name.len());
            texts.insert(text);
        }
        assert_eq!(texts.len(), names.len());
        assert_eq!(to_text("f\u{fc}r".as_bytes()), "f\u{fc}r");
    }
}
