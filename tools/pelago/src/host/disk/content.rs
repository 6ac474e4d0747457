//! What is on a disk, by what it begins with.
//!
//! A disk that begins with zeros is for us to format; every other one is recognised or refused, so
//! that nothing of anybody's is overwritten. Whether what was recognised is whole is for those to
//! find out who read it.

use anyhow::{Result, bail, ensure};

/// So much has to be zero for a disk to count as empty, bytes.
pub const START_BYTES: u64 = 1 << 20;
/// ext4's first superblock (Linux, Documentation/filesystems/ext4/super.rst).
const SUPERBLOCK: usize = 1024;
const EXT_MAGIC: [u8; 2] = 0xef53u16.to_le_bytes();
/// Places in it: the two halves of the number of blocks, the size of one, features that a reader
/// must know.
const BLOCKS_LOW: usize = SUPERBLOCK + 0x4;
const BLOCK_SIZE: usize = SUPERBLOCK + 0x18;
const MAGIC: usize = SUPERBLOCK + 0x38;
const INCOMPATIBLE: usize = SUPERBLOCK + 0x60;
const BLOCKS_HIGH: usize = SUPERBLOCK + 0x150;
/// Features: what ext2 and ext3 never have, and 64-bit numbers of blocks.
const EXTENTS: u32 = 0x40;
const MANY_BLOCKS: u32 = 0x80;
/// Blocks of 4 KiB: 1 KiB shifted by this.
const BLOCK_SHIFT: u32 = 2;
const BLOCK_BYTES: u64 = 4096;
/// LUKS's header, and its version behind it (LUKS2 On-Disk Format Specification, section 2.1).
const LUKS_MAGIC: &[u8] = b"LUKS\xba\xbe";
const LUKS_VERSION: u16 = 2;
/// What others begin with: where, what, the name, and what helps.
const OTHERS: [(usize, &[u8], &str, &str); 5] = [
    (0, b"QFI\xfb", "a qcow2 image", "make it raw: qemu-img convert -O raw"),
    (0, b"XFSB", "an XFS file system", NEW),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system", NEW),
    (0x8001, b"CD001", "an image of a CD", NEW),
    // Last: boot sectors of file systems end like this, too.
    (510, &[0x55, 0xaa], "a partition table", "copy the partition that is meant into a file of its own"),
];
const NEW: &str = "name a new file, with size=";

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros, as far as it was looked at.
    Empty,
    Ext4,
    Luks2,
}

impl Content {
    /// In words, behind "holds".
    pub fn name(self) -> &'static str {
        match self {
            Content::Empty => "nothing yet",
            Content::Ext4 => "an ext4 file system",
            Content::Luks2 => "an encrypted volume (LUKS2)",
        }
    }
}

/// Recognises a disk of so many bytes by its first [`START_BYTES`]. An error names what it holds
/// else, and what to do.
pub fn recognise(start: &[u8], bytes: u64) -> Result<Content> {
    if start.iter().all(|&byte| byte == 0) {
        return Ok(Content::Empty);
    }
    if start.starts_with(LUKS_MAGIC) {
        let version = start.get(LUKS_MAGIC.len()..).and_then(<[u8]>::first_chunk).map(|two| u16::from_be_bytes(*two));
        ensure!(
            version == Some(LUKS_VERSION),
            "it holds an older encrypted volume (LUKS1); convert a copy: cryptsetup convert --type luks2"
        );
        return Ok(Content::Luks2);
    }
    if start.get(MAGIC..MAGIC + EXT_MAGIC.len()) == Some(&EXT_MAGIC) {
        return ext4(start, bytes).map(|()| Content::Ext4);
    }
    for (at, magic, name, remedy) in OTHERS {
        ensure!(start.get(at..at + magic.len()) != Some(magic), "it holds {name}; {remedy}");
    }
    bail!("it holds something that is neither ext4 nor LUKS2, and nothing is overwritten here; {NEW}");
}

fn ext4(start: &[u8], bytes: u64) -> Result<()> {
    let number = |at: usize| start.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |four| u32::from_le_bytes(*four));
    let features = number(INCOMPATIBLE);
    ensure!(features & EXTENTS != 0, "it holds an ext2 or ext3 file system, which we do not read; {NEW}");
    ensure!(number(BLOCK_SIZE) == BLOCK_SHIFT, "its ext4 has other blocks than of 4 KiB; {NEW}, or mkfs.ext4 -b 4096");
    let high = if features & MANY_BLOCKS != 0 { number(BLOCKS_HIGH) } else { 0 };
    let needed = (u64::from(high) << 32 | u64::from(number(BLOCKS_LOW))).checked_mul(BLOCK_BYTES);
    ensure!(
        needed.is_some_and(|needed| needed <= bytes),
        "its ext4 is larger than the file, whose end is missing; copy it again, or shrink it first: resize2fs"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 64 << 20;

    fn start(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut start = vec![0; START_BYTES as usize];
        parts.iter().for_each(|(at, bytes)| start[*at..at + bytes.len()].copy_from_slice(bytes));
        start
    }

    fn told(parts: &[(usize, &[u8])]) -> String {
        match recognise(&start(parts), BYTES) {
            Ok(content) => content.name().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn ours_are_recognised() {
        let four = |number: u32| number.to_le_bytes();
        let ext = |blocks: u32, high: u32, shift: u32, features: u32| {
            let magic: (usize, &[u8]) = (MAGIC, &EXT_MAGIC);
            let numbers = [four(blocks), four(shift), four(features), four(high)];
            let at = [BLOCKS_LOW, BLOCK_SIZE, INCOMPATIBLE, BLOCKS_HIGH];
            let parts: Vec<(usize, &[u8])> = at.into_iter().zip(numbers.iter().map(|four| &four[..])).collect();
            told(&[&parts[..], &[magic]].concat())
        };
        assert_eq!(ext(16384, 0, 2, EXTENTS), Content::Ext4.name());
        // Without the feature the high half is not one.
        assert_eq!(ext(16384, 1, 2, EXTENTS), Content::Ext4.name());
        for (said, words) in [
            (ext(16384, 1, 2, EXTENTS | MANY_BLOCKS), "larger than the file"),
            (ext(16385, 0, 2, EXTENTS), "larger than the file"),
            (ext(16384, 0, 0, EXTENTS), "other blocks"),
            (ext(16384, 0, 2, 0), "ext2 or ext3"),
        ] {
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(told(&[(0, b"LUKS\xba\xbe\0\x02")]), Content::Luks2.name());
        assert!(told(&[(0, b"LUKS\xba\xbe\0\x01")]).contains("LUKS1"));
        assert_eq!(told(&[]), Content::Empty.name());
    }

    #[test]
    fn others_are_refused_by_name() {
        for (at, magic, name, remedy) in OTHERS {
            let said = told(&[(at, magic)]);
            assert!(said.contains(name) && said.contains(remedy), "{said}");
        }
        for at in [0, 700, START_BYTES as usize - 1] {
            assert!(told(&[(at, b"x")]).contains("nothing is overwritten"));
        }
        // A damaged header is nothing to be formatted either.
        assert!(told(&[(1, b"UKS\xba\xbe\0\x02")]).contains("nothing is overwritten"));
    }

    #[test]
    fn what_this_machine_makes_is_recognised() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(BYTES).unwrap();
        let Some(mkfs) = crate::host::path::find_of_root("mkfs.ext4") else { return };
        let mut command = std::process::Command::new(mkfs);
        command.args(["-q", "-F", "-b", "4096"]).arg(file.path());
        assert!(crate::host::child::status(&mut command, crate::host::child::SHORT).unwrap().success());
        let start = crate::host::files::read_start(file.path(), START_BYTES).unwrap();
        assert_eq!(recognise(&start, BYTES).unwrap(), Content::Ext4);
        assert!(recognise(&start, BYTES - BLOCK_BYTES).is_err());
    }

    proptest! {
        /// Only zeros are formatted, however much of the start there is.
        #[test]
        fn nothing_but_zeros_is_empty(bytes in prop::collection::vec(any::<u8>(), 0..2100), at in 0usize..2) {
            let mut start = bytes;
            if let (1, Some(magic)) = (at, start.get_mut(MAGIC..MAGIC + 2)) {
                magic.copy_from_slice(&EXT_MAGIC);
            }
            let is_zero = start.iter().all(|byte| *byte == 0);
            prop_assert_eq!(matches!(recognise(&start, BYTES), Ok(Content::Empty)), is_zero);
        }
    }
}
