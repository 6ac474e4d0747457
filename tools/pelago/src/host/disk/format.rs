//! Makes a new ext4 volume in a file. What the volume is lib/ext4 says; here are the host's file,
//! time and random numbers.

use anyhow::{Context, Result};
use ext4::{Action, BLOCK_BYTES, Format, FormatOptions};
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Zeros are written in pieces of so many bytes where they cannot be punched.
const PIECE_BYTES: u64 = 1 << 20;

/// What a volume is made in.
pub trait Target {
    /// Writes whole blocks.
    fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()>;
    /// Zeros are read there afterwards.
    fn zero(&self, from: u64, bytes: u64) -> std::io::Result<()>;
    /// What was written is on the host's disk.
    fn flush(&self) -> std::io::Result<()>;
}

impl Target for File {
    fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn zero(&self, from: u64, bytes: u64) -> std::io::Result<()> {
        zero(self, from, bytes)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.sync_data()
    }
}

/// Formats something of so many bytes; `is_zero` if all of them are zeros. It is on the host's disk
/// when this returns. One that this did not end in is recognised as empty again.
pub fn format(target: &impl Target, bytes: u64, is_zero: bool) -> Result<()> {
    let options = FormatOptions {
        device_blocks: bytes / BLOCK_BYTES as u64,
        uuid: uuid()?,
        hash_seed: random()?,
        label: [0; 16],
        now_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        is_zero,
    };
    let format = Format::new(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    for action in format {
        let done = match action {
            Action::Write { block, bytes } => target.write(block * BLOCK_BYTES as u64, &bytes[..]),
            Action::Zero { first, blocks } => target.zero(first * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64),
            Action::Flush => target.flush(),
        };
        done.context("it cannot be written")?;
    }
    Ok(())
}

/// By a hole, which takes no room, where the host's file system has such.
fn zero(file: &File, from: u64, bytes: u64) -> std::io::Result<()> {
    let punched = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    if fallocate(file, punched, from as i64, bytes as i64).is_ok() {
        return Ok(());
    }
    let zeros = vec![0; PIECE_BYTES as usize];
    let mut done = 0;
    while done < bytes {
        let count = PIECE_BYTES.min(bytes - done);
        file.write_all_at(&zeros[..count as usize], from + done)?;
        done += count;
    }
    Ok(())
}

/// A random one (RFC 9562, section 5.4).
fn uuid() -> Result<[u8; 16]> {
    let mut uuid = random()?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// Random bytes of the host.
pub fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    random_source()?.read_exact(&mut bytes).context(NO_RANDOM)?;
    Ok(bytes)
}

/// Where they come from.
pub fn random_source() -> Result<File> {
    File::open("/dev/urandom").context(NO_RANDOM)
}

const NO_RANDOM: &str = "this machine gives no random numbers";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::disk::content::{Content, START_BYTES, recognise};
    use crate::host::{child, files, path};

    const BYTES: u64 = 64 << 20;

    /// Of zeros and of other bytes behind the first MiB; e2fsck finds nothing in either.
    #[test]
    fn what_is_made_is_sound_and_recognised() {
        for (is_zero, rest) in [(true, 0), (false, 0xa5)] {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(BYTES).unwrap();
            if !is_zero {
                file.as_file().write_all_at(&vec![rest; (BYTES - START_BYTES) as usize], START_BYTES).unwrap();
            }
            format(file.as_file(), BYTES, is_zero).unwrap();
            let start = files::read_start(file.path(), START_BYTES).unwrap();
            assert_eq!(recognise(&start, BYTES).unwrap(), Content::Ext4);
            assert_eq!(file.as_file().metadata().unwrap().len(), BYTES);
            let Some(e2fsck) = path::find_of_root("e2fsck") else { continue };
            let output =
                child::output(std::process::Command::new(e2fsck).arg("-fn").arg(file.path()), child::SHORT).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }

    /// One that was cut off is formatted again, after any of its steps.
    #[test]
    fn what_was_not_ended_counts_as_empty() {
        let options = FormatOptions {
            device_blocks: BYTES / BLOCK_BYTES as u64,
            uuid: [7; 16],
            hash_seed: [8; 16],
            label: [0; 16],
            now_seconds: 1,
            is_zero: true,
        };
        let mut start = vec![0; START_BYTES as usize];
        let actions: Vec<Action> = Format::new(&options).unwrap().collect();
        let last = actions.iter().rposition(|action| matches!(action, Action::Write { .. })).unwrap();
        for (step, action) in actions.iter().enumerate() {
            if let Action::Write { block, bytes } = action
                && (block + 1) * BLOCK_BYTES as u64 <= START_BYTES
            {
                start[*block as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&bytes[..]);
            }
            let content = recognise(&start, BYTES).unwrap();
            assert_eq!(content, if step < last { Content::Empty } else { Content::Ext4 }, "after step {step}");
        }
    }

    #[test]
    fn each_volume_has_an_identity_of_its_own() {
        let (one, other) = (uuid().unwrap(), uuid().unwrap());
        assert_ne!(one, other);
        assert_eq!((one[6] >> 4, one[8] >> 6), (4, 2));
    }
}
