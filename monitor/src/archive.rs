//! Files of the boot archive (cpio "newc", man 5 cpio), found by path. A damaged archive ends at
//! the damage.

const HEADER_BYTES: usize = 110;
const NAME_SIZE: usize = 11;
const FILE_SIZE: usize = 6;
const LAST: &[u8] = b"TRAILER!!!";

/// Where a file's bytes lie in the archive: offset and length.
pub fn find(archive: &[u8], path: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    loop {
        let header = archive.get(at..at + HEADER_BYTES)?;
        if !header.starts_with(b"07070") {
            return None;
        }
        let (name_bytes, file_bytes) = (number(header, NAME_SIZE)?, number(header, FILE_SIZE)?);
        let name_at = at + HEADER_BYTES;
        // Writers pad names with zeros to align what follows.
        let name = archive.get(name_at..name_at.checked_add(name_bytes)?)?.split(|byte| *byte == 0).next()?;
        let file_at = (name_at + name_bytes).next_multiple_of(4);
        let end = file_at.checked_add(file_bytes)?;
        if end > archive.len() || name == LAST {
            return None;
        }
        if name == path.as_bytes() {
            return Some((file_at, file_bytes));
        }
        at = end.next_multiple_of(4);
    }
}

/// A file's bytes.
pub fn file<'a>(archive: &'a [u8], path: &str) -> Option<&'a [u8]> {
    let (at, bytes) = find(archive, path)?;
    archive.get(at..at + bytes)
}

fn number(header: &[u8], field: usize) -> Option<usize> {
    let digits = header.get(6 + 8 * field..14 + 8 * field)?;
    usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::member;

    #[test]
    fn files_are_found_and_damage_ends_the_search() {
        let mut archive = member("etc/run", b"abcde");
        archive.extend(member("sbin/ip", b"x"));
        archive.extend(member("TRAILER!!!", b""));
        assert_eq!(file(&archive, "sbin/ip"), Some(&b"x"[..]));
        assert_eq!(file(&archive, "etc/run"), Some(&b"abcde"[..]));
        assert_eq!(file(&archive, "TRAILER!!!"), None);
        // The last may end with the archive, and not behind it.
        let last = member("etc/run", b"abcd");
        assert_eq!(find(&last, "etc/run"), Some((last.len() - 4, 4)));
        assert_eq!(find(&last[..last.len() - 1], "etc/run"), None);
        for length in 0..archive.len() {
            let _ = file(&archive[..length], "nowhere");
        }
        for at in 0..archive.len() {
            let mut bad = archive.clone();
            bad[at] ^= 0x55;
            let _ = file(&bad, "nowhere");
        }
    }
}
