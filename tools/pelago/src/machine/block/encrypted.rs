//! A disk that is encrypted as `run --disk ...,key=` makes it, by what is within.
//!
//! The cipher works on 16 bytes at a time, each by its place. So a power cut that leaves some of a
//! write's sectors as they were leaves the same of what is within: a log can be decrypted first and
//! cut then.

use crate::host::disk::DiskOption;
use crate::host::files;
use crate::machine::block::image::Image;
use crate::machine::block::log::{Content, Entry, Log};
use anyhow::{Context, Result, anyhow, ensure};
use luks::{Handover, SectorCipher};
use std::path::Path;
use std::sync::Arc;

const KEY: &[u8] = b"in the dark";
/// What the disk has before its file system, for headers and keys.
const HEAD_BYTES: u64 = 16 << 20;
/// Images are read in pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// See the module's head.
pub struct Encrypted {
    /// The disk with an empty file system.
    pub image: Image,
    /// What the guest is given.
    pub handover: Arc<Handover>,
    cipher: SectorCipher,
}

impl Encrypted {
    /// Makes one with a file system of about so many bytes.
    pub fn make(bytes: u64) -> Result<Encrypted> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (file, key) = (folder.path().join("disk"), folder.path().join("key"));
        files::write(&key, KEY)?;
        let option = format!("{},size={}M,key={}", file.display(), (bytes + HEAD_BYTES) >> 20, key.display());
        let disk = option.parse::<DiskOption>()?.check()?.made()?;
        let handover = disk.handover().and_then(|handover| Handover::decode(&handover.encode()));
        let handover = handover.context("the disk was not encrypted")?;
        Ok(Encrypted::of(Image::read_file(&file)?, handover))
    }

    fn of(image: Image, handover: Handover) -> Encrypted {
        let cipher = SectorCipher::by_instructions(&handover.key, &handover.segment);
        let cipher = cipher.unwrap_or_else(|| SectorCipher::new(&handover.key, &handover.segment));
        Encrypted { image, handover: Arc::new(handover), cipher }
    }

    /// What was asked of the file system's own disk, by a log of what was asked of this one. An
    /// error if anything but whole sectors of it was written.
    pub fn within(&self, log: &Log) -> Result<Log> {
        let mut inside = Log::new(self.decrypted(log.initial())?);
        for entry in log.entries() {
            inside.add(match entry {
                Entry::Write { offset, content: Content::Data(data), is_through } => {
                    let offset = offset.checked_sub(self.handover.segment.offset).context("a header was written")?;
                    let mut data = data.clone();
                    self.cipher.decrypt(offset, &mut data).map_err(|error| anyhow!("at {offset}: {error}"))?;
                    Entry::Write { offset, content: Content::Data(data), is_through: *is_through }
                }
                // On the disk they would be noise to who reads them.
                Entry::Write { offset, .. } => return Err(anyhow!("zeros were written at {offset}")),
                other => other.clone(),
            })?;
        }
        Ok(inside)
    }

    /// What is within a disk.
    pub fn decrypted(&self, disk: &Image) -> Result<Image> {
        let segment = &self.handover.segment;
        let mut inside = Image::zeros(segment.bytes);
        self.each_piece(|at, piece| {
            disk.read(segment.offset + at, piece);
            self.cipher.decrypt(at, piece).map_err(|error| anyhow!("{error}"))?;
            inside.write(at, piece);
            Ok(())
        })?;
        Ok(inside)
    }

    /// Writes a disk to a file, encrypted, by what is within.
    pub fn write_file(&self, inside: &Image, file: &Path) -> Result<()> {
        let segment = &self.handover.segment;
        ensure!(inside.bytes() == segment.bytes, "it is of another disk");
        let mut disk = self.image.clone();
        self.each_piece(|at, piece| {
            inside.read(at, piece);
            self.cipher.encrypt(at, piece).map_err(|error| anyhow!("{error}"))?;
            disk.write(segment.offset + at, piece);
            Ok(())
        })?;
        disk.write_file(file)
    }

    fn each_piece(&self, mut piece: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<()> {
        let (end, mut bytes) = (self.handover.segment.bytes, vec![0; PIECE_BYTES as usize]);
        let mut pieces = (0..end).step_by(PIECE_BYTES as usize);
        pieces.try_for_each(|at| piece(at, &mut bytes[..PIECE_BYTES.min(end - at) as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use luks::{SectorBytes, Segment, VolumeKey};

    const SEGMENT: Segment =
        Segment { offset: 8192, bytes: 64 << 10, sector: SectorBytes::B4096, tweak: 0, allows_discards: false };

    fn made() -> Encrypted {
        let key = VolumeKey::take(&mut std::array::from_fn(|at| at as u8));
        let handover = Handover { key, segment: SEGMENT };
        Encrypted::of(Image::zeros(SEGMENT.offset + SEGMENT.bytes), handover)
    }

    fn write(offset: u64, data: Vec<u8>) -> Entry {
        Entry::Write { offset, content: Content::Data(data), is_through: false }
    }

    /// What is within is what was written, sector by sector of the disk's own, and what is made of
    /// it anew is the disk.
    #[test]
    fn a_log_is_decrypted_and_a_disk_encrypted() {
        let disk = made();
        let plain: Vec<u8> = (0..8192).map(|at| (at % 251) as u8).collect();
        let mut data = plain.clone();
        disk.cipher.encrypt(4096, &mut data).unwrap();
        let mut log = Log::new(disk.image.clone());
        log.add(write(SEGMENT.offset + 4096, data.clone())).unwrap();
        log.add(Entry::Flush { covers: 1 }).unwrap();
        log.add(Entry::Mark(7)).unwrap();
        let inside = disk.within(&log).unwrap();
        assert_eq!(inside.entries()[0], write(4096, plain.clone()));
        assert_eq!(inside.entries()[1..], log.entries()[1..]);
        // A part of it, as a cut may leave it.
        let torn = |log: &Log, from: u64| {
            let Entry::Write { offset, content, .. } = &log.entries()[0] else { panic!() };
            let mut image = log.initial().clone();
            content.apply(&mut image, *offset, from, from + 512);
            image
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        disk.write_file(&torn(&inside, 1024), &file).unwrap();
        let (mut is, mut wanted) = (vec![0; disk.image.bytes() as usize], vec![0; disk.image.bytes() as usize]);
        Image::read_file(&file).unwrap().read(0, &mut is);
        torn(&log, 1024).read(0, &mut wanted);
        assert!(is == wanted);
        assert!(disk.decrypted(&torn(&log, 1024)).unwrap().bytes() == SEGMENT.bytes);
    }

    #[test]
    fn what_is_no_sector_of_the_file_system_is_told() {
        let disk = made();
        let told = |entry| {
            let mut log = Log::new(disk.image.clone());
            log.add(entry).unwrap();
            disk.within(&log).map(drop).unwrap_err().to_string()
        };
        assert!(told(write(4096, vec![0; 4096])).contains("a header was written"));
        assert!(told(write(SEGMENT.offset, vec![0; 512])).contains("not whole sectors"));
        let zeros = Entry::Write { offset: SEGMENT.offset, content: Content::Zeros(4096), is_through: false };
        assert!(told(zeros).contains("zeros were written"));
    }
}
