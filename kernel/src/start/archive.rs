//! The boot archive: a cpio file in "newc" form (cpio(5)), read in place. What it says is a claim;
//! a bad header ends the reading.

const HEADER_BYTES: usize = 110;
const MAGICS: [&[u8]; 2] = [b"070701", b"070702"];
const END_NAME: &[u8] = b"TRAILER!!!";
/// Most files looked at.
const FILES_MAX: usize = 65_536;

/// The contents of the file called `name`.
pub fn find<'a>(archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut rest = archive;
    for _ in 0..FILES_MAX {
        let (found, contents, after) = next(rest)?;
        if found == END_NAME {
            return None;
        }
        if found.strip_prefix(b"./").unwrap_or(found) == name.as_bytes() {
            return Some(contents);
        }
        rest = after;
    }
    None
}

/// Name and contents of the first file, and what follows it.
fn next(archive: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let header = archive.get(..HEADER_BYTES)?;
    if !MAGICS.contains(&&header[..6]) {
        return None;
    }
    let contents_bytes = hexadecimal(&header[54..62])?;
    let name_bytes = hexadecimal(&header[94..102])?;
    let contents_at = (HEADER_BYTES + name_bytes).next_multiple_of(4);
    let name = archive.get(HEADER_BYTES..HEADER_BYTES + name_bytes)?;
    let contents = archive.get(contents_at..contents_at + contents_bytes)?;
    let after = archive.get((contents_at + contents_bytes).next_multiple_of(4)..).unwrap_or(&[]);
    // Writers pad names with zeros to align what follows.
    let name = name.split(|byte| *byte == 0).next()?;
    Some((name, contents, after))
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)? as usize))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn finds_files_and_survives_damage() {
        let archive: Vec<u8> =
            [file("./etc/system", 0, b"abc"), file("sbin/monitor", 0, b"hello"), file("TRAILER!!!", 0, b"")].concat();
        assert_eq!(find(&archive, "sbin/monitor"), Some(&b"hello"[..]));
        assert_eq!(find(&archive, "etc/system"), Some(&b"abc"[..]));
        assert_eq!(find(&archive, "sbin"), None);
        for end in 0..archive.len() {
            find(&archive[..end], "sbin/monitor");
        }
        for at in 0..archive.len() {
            let mut damaged = archive.clone();
            damaged[at] ^= 0x5f;
            find(&damaged, "nothing");
        }
    }

    #[test]
    fn numbers_of_a_header_are_hexadecimal_and_nothing_else() {
        assert_eq!(
            [&b"00000000"[..], b"0000001f", b"ABCDEF09"].map(hexadecimal),
            [Some(0), Some(0x1f), Some(0xabcd_ef09)]
        );
        assert_eq!([&b"0000000g"[..], b"-0000001", b"        "].map(hexadecimal), [None; 3]);
        let long = vec![7; 0x1234];
        let archive = [file("long", 0, &long), file("after", 0, b"it")].concat();
        assert_eq!((find(&archive, "long"), find(&archive, "after")), (Some(&long[..]), Some(&b"it"[..])));
    }
}
