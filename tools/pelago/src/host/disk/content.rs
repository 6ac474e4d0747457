//! What is on a disk, by what it begins with.
//!
//! A disk that begins with zeros is for us to format, as is one where that was not ended; every
//! other one is recognised or refused, so that nothing of anybody's is overwritten. Whether what
//! was recognised is whole is for those to find out who read it.

use anyhow::{Result, anyhow, bail, ensure};
use ext4::{BLOCK_BYTES, Block, Blocks, Refusal, Stop, Volume};

/// So much has to be zero for a disk to count as empty, bytes.
pub const START_BYTES: u64 = 1 << 20;
/// The magic number of ext2 to ext4, and where it is.
const EXT_MAGIC: [u8; 2] = 0xef53u16.to_le_bytes();
const MAGIC: usize = 1024 + 0x38;
/// Features that a reader must know, and the one that ext2 and ext3 never have.
const INCOMPATIBLE: usize = 1024 + 0x60;
const EXTENTS: u32 = 0x40;
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
    /// Zeros, as far as it was looked at, or what was being formatted and is to be again.
    Empty,
    Ext4,
    Luks2,
}

impl Content {
    /// In words.
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
    if start.iter().all(|&byte| byte == 0) || start.first_chunk().is_some_and(ext4::is_unfinished) {
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

/// Block 0 of a volume, and nothing else.
struct First<'a>(&'a Block);

impl Blocks for First<'_> {
    fn block(&self, number: u64) -> Option<&Block> {
        (number == 0).then_some(self.0)
    }
}

/// As the guest's own code recognises it.
fn ext4(start: &[u8], bytes: u64) -> Result<()> {
    let features = start.get(INCOMPATIBLE..).and_then(<[u8]>::first_chunk).map_or(0, |four| u32::from_le_bytes(*four));
    ensure!(features & EXTENTS != 0, "it holds an ext2 or ext3 file system, which we do not read; {NEW}");
    let Some(block) = start.first_chunk() else { bail!("its ext4 ends within its first block; {NEW}") };
    match Volume::open(&First(block), bytes / BLOCK_BYTES as u64) {
        Ok(_) => Ok(()),
        Err(Stop::Failed(error)) => Err(why_not(error)),
        Err(Stop::Commit(_)) => bail!("its ext4 is told only by a transaction; {NEW}"),
        Err(Stop::Need(number)) => bail!("its ext4 is told only by its block {number}; {NEW}"),
    }
}

/// In words, with what to do.
fn why_not(error: ext4::Error) -> anyhow::Error {
    let ext4::Error::Refused(refusal) = error else {
        return anyhow!("its ext4 is damaged ({error}); look at a copy: e2fsck -f");
    };
    let remedy = match refusal {
        Refusal::Device { .. } => {
            return anyhow!(
                "its ext4 is larger than the file, whose end is missing; copy it again, or shrink it first: resize2fs"
            );
        }
        Refusal::Has(feature) => format!("mkfs.ext4 -O ^{feature}"),
        Refusal::Lacks(feature) => format!("mkfs.ext4 -O {feature}"),
        Refusal::Size(..) => "mkfs.ext4 -b 4096".into(),
        Refusal::Unknown(..) => NEW.into(),
    };
    anyhow!("its ext4 {refusal}; make one without that, and copy the files: {remedy}")
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
        assert_eq!(told(&[(0, b"LUKS\xba\xbe\0\x02")]), Content::Luks2.name());
        assert!(told(&[(0, b"LUKS\xba\xbe\0\x01")]).contains("LUKS1"));
        assert_eq!(told(&[]), Content::Empty.name());
    }

    /// A volume of this machine's mkfs.ext4, by its first bytes; none where there is no such
    /// program.
    fn made(options: &[&str], bytes: u64, change: impl FnOnce(&mut Vec<u8>)) -> Option<Result<Content>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(BYTES).unwrap();
        let mut command = std::process::Command::new(crate::host::path::find_of_root("mkfs.ext4")?);
        command.args(["-q", "-F"]).args(options).arg(file.path());
        assert!(crate::host::child::status(&mut command, crate::host::child::SHORT).unwrap().success());
        let mut start = crate::host::files::read_start(file.path(), START_BYTES).unwrap();
        change(&mut start);
        Some(recognise(&start, bytes))
    }

    /// What of a volume is not supported is told by its name, with how to make another: as the
    /// guest's code has it.
    #[test]
    fn volumes_of_this_machine_are_recognised_or_refused_by_name() {
        const PLAIN: [&str; 2] = ["-b", "4096"];
        let Some(ours) = made(&PLAIN, BYTES, |_| ()) else { return };
        assert_eq!(ours.unwrap(), Content::Ext4);
        let with = |feature| [&PLAIN[..], &["-O", feature]].concat();
        for (options, words) in [
            (vec!["-b", "1024"], "log_block_size is 0, which is not supported"),
            (with("^metadata_csum"), "lacks the feature metadata_csum"),
            (with("inline_data"), "has the feature inline_data"),
            (with("encrypt"), "mkfs.ext4 -O ^encrypt"),
            (with("^has_journal"), "mkfs.ext4 -O has_journal"),
            (vec!["-b", "4096", "-t", "ext3"], "ext2 or ext3"),
        ] {
            let said = made(&options, BYTES, |_| ()).unwrap().unwrap_err().to_string();
            assert!(said.contains(words), "{options:?}: {said}");
        }
        let damaged = |start: &mut Vec<u8>| start[1024 + 0x78] ^= 1;
        assert!(made(&PLAIN, BYTES, damaged).unwrap().unwrap_err().to_string().contains("is damaged"));
        let short = made(&PLAIN, BYTES - 4096, |_| ()).unwrap().unwrap_err().to_string();
        assert!(short.contains("larger than the file"), "{short}");
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
