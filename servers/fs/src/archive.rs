//! The boot archive: cpio in the "newc" form (man 5 cpio), as the host tool writes it.
//!
//! The archive may be damaged: a member that does not add up ends the walk with an error, and what
//! came before it counts.

/// What a member is, from the type bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// With its bytes.
    File,
    /// A directory.
    Directory,
    /// Its bytes are the target.
    SymbolicLink,
    /// Devices, sockets: left out.
    Other,
}

/// One member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Members of one number, if they have several links, are one file.
    pub number: u32,
    /// How many names the file has.
    pub links: u32,
    /// Path without leading slash.
    pub path: &'a str,
    /// Type.
    pub kind: MemberKind,
    /// Permission bits.
    pub permissions: u32,
    /// Whose it is.
    pub user: u32,
    /// Of which group.
    pub group: u32,
    /// Seconds since 1970.
    pub modified_seconds: u32,
    /// Contents.
    pub bytes: &'a [u8],
}

/// The archive does not add up. Remedy: build it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

const HEADER_BYTES: usize = 110;
const LAST: &str = "TRAILER!!!";

/// All members in order.
pub struct Members<'a> {
    rest: &'a [u8],
}

/// Walks an archive.
pub fn members(archive: &[u8]) -> Members<'_> {
    Members { rest: archive }
}

fn number(header: &[u8], field: usize) -> Option<u32> {
    let text = core::str::from_utf8(header.get(6 + 8 * field..14 + 8 * field)?).ok()?;
    u32::from_str_radix(text, 16).ok()
}

impl<'a> Members<'a> {
    fn take(&mut self) -> Option<Member<'a>> {
        let header = self.rest.get(..HEADER_BYTES)?;
        if !header.starts_with(b"070701") && !header.starts_with(b"070702") {
            return None;
        }
        let (inode, links) = (number(header, 0)?, number(header, 4)?);
        let (mode, modified_seconds) = (number(header, 1)?, number(header, 5)?);
        let (user, group) = (number(header, 2)?, number(header, 3)?);
        let (bytes, name_bytes) = (number(header, 6)? as usize, number(header, 11)? as usize);
        let name_end = HEADER_BYTES.checked_add(name_bytes)?;
        let data = name_end.checked_next_multiple_of(4)?;
        let end = data.checked_add(bytes)?;
        // Writers pad names with zeros to align what follows.
        let name = self.rest.get(HEADER_BYTES..name_end)?.strip_suffix(b"\0")?.split(|byte| *byte == 0).next()?;
        let contents = self.rest.get(data..end)?;
        self.rest = self.rest.get(end.checked_next_multiple_of(4)?..).unwrap_or(&[]);
        let kind = match mode & 0o170000 {
            0o100000 => MemberKind::File,
            0o040000 => MemberKind::Directory,
            0o120000 => MemberKind::SymbolicLink,
            _ => MemberKind::Other,
        };
        let path = core::str::from_utf8(name).ok()?;
        let path = path.trim_start_matches("./").trim_matches('/');
        let permissions = mode & 0o7777;
        Some(Member { number: inode, links, path, kind, permissions, user, group, modified_seconds, bytes: contents })
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.take() {
            Some(member) if member.path == LAST => {
                self.rest = &[];
                None
            }
            Some(member) => Some(Ok(member)),
            None => {
                self.rest = &[];
                Some(Err(Damaged))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn write(archive: &mut Vec<u8>, path: &str, mode: u32, bytes: &[u8]) {
        write_linked(archive, path, mode, bytes, (1, 1));
    }

    /// With the file's number and how many names it has.
    pub(crate) fn write_linked(archive: &mut Vec<u8>, path: &str, mode: u32, bytes: &[u8], link: (u32, u32)) {
        let fields = [link.0, mode, 5, 60, link.1, 1000, bytes.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        archive.extend(b"070701");
        fields.iter().for_each(|field| archive.extend(format!("{field:08x}").bytes()));
        archive.extend(path.bytes().chain([0]));
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }

    #[test]
    fn members_come_in_order_and_damage_is_noticed() {
        let mut archive = Vec::new();
        write(&mut archive, "root", 0o40755, b"");
        write(&mut archive, "./root/hello", 0o100644, b"world");
        write(&mut archive, "root/link", 0o120777, b"hello");
        write(&mut archive, LAST, 0, b"");
        let all: Vec<_> = members(&archive).collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(
            all[1],
            Member {
                number: 1,
                links: 1,
                path: "root/hello",
                kind: MemberKind::File,
                permissions: 0o644,
                user: 5,
                group: 60,
                modified_seconds: 1000,
                bytes: b"world"
            }
        );
        assert_eq!((all[2].kind, all[2].bytes), (MemberKind::SymbolicLink, &b"hello"[..]));
        for end in 1..archive.len() {
            members(&archive[..end]).for_each(drop);
            let mut broken = archive.clone();
            broken[end] ^= 0x5a;
            members(&broken).for_each(drop);
        }
        assert_eq!(members(&archive[..200]).last(), Some(Err(Damaged)));
    }

    #[test]
    fn members_of_both_formats_are_taken_and_of_no_other() {
        let mut archive = Vec::new();
        write(&mut archive, "file", 0o100644, b"bytes");
        for (magic, is_known) in [(b"070701", true), (b"070702", true), (b"070707", false)] {
            archive[..6].copy_from_slice(magic);
            let first = members(&archive).next().unwrap();
            assert_eq!(first.map(|member| member.bytes), if is_known { Ok(&b"bytes"[..]) } else { Err(Damaged) });
        }
    }
}
