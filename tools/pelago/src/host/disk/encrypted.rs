//! An encrypted volume (LUKS2) in a file: opened with a key, or made anew around a file system.
//! What a volume is lib/luks says; here are the host's file, random numbers and words.

use super::content::{Content, START_BYTES, recognise};
use super::format::{self, Target};
use anyhow::{Context, Result, anyhow, bail};
use luks::{AREA_BYTES, Budget, Format, HEAD_BYTES, Handover, Header, SectorBytes, SectorCipher, Strength, Write};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Zeros are written in pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// A volume that was opened.
pub struct Opened {
    /// What the guest needs of it.
    pub handover: Handover,
    /// What puts a header right that is not as the other, to be written before anything else is.
    repair: Option<Write>,
    /// What is in it.
    content: Content,
}

/// Opens the volume of a file of so many bytes; nothing is written. Nothing is given if no slot of
/// it has this key.
pub fn open(file: &File, bytes: u64, key: &[u8]) -> Result<Option<Opened>> {
    let header = Header::read(&read(file, 0, bytes.min(HEAD_BYTES as u64))?, bytes).map_err(in_words)?;
    let mut budget = Budget::HOST;
    for slot in header.slots() {
        let mut area = read(file, slot.area, AREA_BYTES as u64)?;
        if let Some(key) = header.open_slot(slot.number, key, &mut area, &mut budget).map_err(in_words)? {
            let handover = Handover { key, segment: header.segment().clone() };
            let content = content(file, &handover)?;
            let repair = header.repair(&format::random()?);
            return Ok(Some(Opened { handover, repair, content }));
        }
    }
    if let Some((number, why)) = header.refused_slots().first() {
        bail!("none of its key slots that we can open has this key, and slot {number} {why}; {CONVERT}");
    }
    Ok(None)
}

const CONVERT: &str = "convert it: cryptsetup luksConvertKey --pbkdf argon2id";

fn in_words(error: luks::Error) -> anyhow::Error {
    match error {
        luks::Error::Refused(_) => anyhow!("{error}; make another, and copy the files"),
        luks::Error::Damaged(_) => anyhow!("{error}; look at a copy: cryptsetup repair"),
        error => anyhow!("{error}"),
    }
}

/// What is in an open volume, which has to be a file system of ours.
fn content(file: &File, handover: &Handover) -> Result<Content> {
    let segment = &handover.segment;
    let whole = segment.bytes.min(START_BYTES) / segment.sector.get() as u64 * segment.sector.get() as u64;
    let mut start = read(file, segment.offset, whole)?;
    let cipher = SectorCipher::new(&handover.key, segment);
    cipher.decrypt(0, &mut start).map_err(|error| anyhow!("it cannot be decrypted: {error}"))?;
    match recognise(&start, segment.bytes).context("within its encryption")? {
        Content::Luks2 => bail!("it is encrypted twice; name a new file, with size="),
        content => Ok(content),
    }
}

fn read(file: &File, at: u64, bytes: u64) -> Result<Vec<u8>> {
    let mut all = vec![0; bytes as usize];
    file.read_exact_at(&mut all, at).context("it cannot be read")?;
    Ok(all)
}

impl Opened {
    /// Before the guest writes to it: puts its headers right, and formats it if that was not ended.
    pub fn prepare(&mut self, file: &File) -> Result<()> {
        if let Some(repair) = self.repair.take() {
            file.write_all_at(&repair.bytes, repair.at).and_then(|()| file.sync_data()).context(UNWRITTEN)?;
        }
        if self.content == Content::Empty {
            fill(file, &self.handover)?;
            self.content = Content::Ext4;
        }
        Ok(())
    }
}

const UNWRITTEN: &str = "it cannot be written";

/// Makes a volume with an empty file system in a file of so many bytes. One that this did not end
/// in is recognised as empty again.
pub fn make(file: &File, bytes: u64, key: &[u8], strength: Strength) -> Result<Opened> {
    let mut source = format::random_source()?;
    let mut filled = Ok(());
    let mut random = |bytes: &mut [u8]| {
        if let Err(error) = source.read_exact(bytes) {
            filled = Err(error);
        }
    };
    // 4,096 bytes are the file system's blocks. A sector that is torn is no worse than one of 512:
    // each 16 bytes are encrypted by themselves.
    let options = Format { device_bytes: bytes, sector: SectorBytes::B4096, passphrase: key, strength };
    let formatted = luks::format(&options, &mut random).map_err(in_words)?;
    filled.context("this machine gives no random numbers")?;
    let handover = Handover { key: formatted.key, segment: formatted.segment };
    file.write_all_at(&ext4::unfinished()[..], 0).and_then(|()| file.sync_data()).context(UNWRITTEN)?;
    fill(file, &handover)?;
    // The first header comes last.
    let (first, others): (Vec<_>, Vec<_>) = formatted.writes.iter().partition(|write| write.at == 0);
    for writes in [others, first] {
        let written = writes.iter().try_for_each(|write| file.write_all_at(&write.bytes, write.at));
        written.and_then(|()| file.sync_data()).context(UNWRITTEN)?;
    }
    Ok(Opened { handover, repair: None, content: Content::Ext4 })
}

/// Makes a file system in a volume that is open. What was never written there reads as noise.
fn fill(file: &File, handover: &Handover) -> Result<()> {
    let segment = &handover.segment;
    let cipher = SectorCipher::new(&handover.key, segment);
    format::format(&Inside { file, cipher, offset: segment.offset }, segment.bytes, false)
}

/// An encrypted volume that is written through its cipher.
struct Inside<'a> {
    file: &'a File,
    cipher: SectorCipher,
    offset: u64,
}

impl Target for Inside<'_> {
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        self.cipher.encrypt(at, &mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        self.file.write_all_at(&bytes, self.offset + at)
    }

    fn zero(&self, from: u64, bytes: u64) -> io::Result<()> {
        let pieces = (0..bytes).step_by(PIECE_BYTES as usize);
        pieces
            .into_iter()
            .try_for_each(|done| self.write(from + done, &vec![0; PIECE_BYTES.min(bytes - done) as usize]))
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use luks::DATA_OFFSET;

    const BYTES: u64 = 64 << 20;
    const KEY: &[u8] = b"correct horse";
    /// So little that a test takes no time for it.
    const CHEAP: Strength = Strength { memory_kib: 64, passes: 1, digest_iterations: 1000 };

    fn made() -> (tempfile::NamedTempFile, Opened) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(BYTES).unwrap();
        let opened = make(file.as_file(), BYTES, KEY, CHEAP).unwrap();
        (file, opened)
    }

    /// A plain copy of what is in a volume.
    fn decrypted(file: &File, handover: &Handover) -> tempfile::NamedTempFile {
        let mut bytes = read(file, handover.segment.offset, handover.segment.bytes).unwrap();
        SectorCipher::new(&handover.key, &handover.segment).decrypt(0, &mut bytes).unwrap();
        let copy = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(copy.path(), bytes).unwrap();
        copy
    }

    #[test]
    fn what_is_made_is_opened_by_its_key_only_and_sound() {
        let (file, made) = made();
        let opened = open(file.as_file(), BYTES, KEY).unwrap().unwrap();
        assert_eq!(opened.content, Content::Ext4);
        assert_eq!(opened.handover.key.bytes(), made.handover.key.bytes());
        assert!(opened.repair.is_none());
        assert!(open(file.as_file(), BYTES, b"correct horse\n").unwrap().is_none());
        assert_eq!(recognise(&read(file.as_file(), 0, START_BYTES).unwrap(), BYTES).unwrap(), Content::Luks2);
        let Some(e2fsck) = crate::host::path::find_of_root("e2fsck") else { return };
        let copy = decrypted(file.as_file(), &opened.handover);
        let mut command = std::process::Command::new(e2fsck);
        let found = crate::host::child::output(command.arg("-fn").arg(copy.path()), crate::host::child::SHORT).unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
    }

    /// cryptsetup takes the key of the file, and no other.
    #[test]
    fn cryptsetup_knows_the_key() {
        let Some(cryptsetup) = crate::host::path::find_of_root("cryptsetup") else { return };
        let (file, _) = made();
        let key = tempfile::NamedTempFile::new().unwrap();
        let takes = |bytes: &[u8]| {
            std::fs::write(key.path(), bytes).unwrap();
            let mut command = std::process::Command::new(&cryptsetup);
            command.args(["open", "--test-passphrase", "--key-file"]).args([key.path(), file.path()]);
            crate::host::child::output(&mut command, crate::host::child::SHORT).unwrap().status.success()
        };
        assert!(takes(KEY));
        assert!(!takes(b"correct house"));
    }

    /// A header that a cut left older is put right before the guest writes; a file system that was
    /// not ended is made again.
    #[test]
    fn what_was_not_ended_is_ended() {
        let (file, made) = made();
        let bytes = read(file.as_file(), 0, 4096).unwrap();
        file.as_file().write_all_at(&[0; 4096], 16 << 10).unwrap();
        let inside = Inside {
            file: file.as_file(),
            cipher: SectorCipher::new(&made.handover.key, &made.handover.segment),
            offset: DATA_OFFSET,
        };
        inside.write(0, &ext4::unfinished()[..]).unwrap();
        let mut opened = open(file.as_file(), BYTES, KEY).unwrap().unwrap();
        assert_eq!((opened.content, opened.repair.is_some()), (Content::Empty, true));
        opened.prepare(file.as_file()).unwrap();
        let opened = open(file.as_file(), BYTES, KEY).unwrap().unwrap();
        assert_eq!((opened.content, opened.repair.is_some()), (Content::Ext4, false));
        assert_eq!(read(file.as_file(), 0, 4096).unwrap(), bytes);
    }

    #[test]
    fn a_volume_without_a_file_system_of_ours_is_refused() {
        let (file, made) = made();
        let inside = Inside {
            file: file.as_file(),
            cipher: SectorCipher::new(&made.handover.key, &made.handover.segment),
            offset: DATA_OFFSET,
        };
        inside.write(0, &[0xa5; 4096]).unwrap();
        let said = format!("{:#}", open(file.as_file(), BYTES, KEY).map(drop).unwrap_err());
        assert!(said.contains("within its encryption: it holds something"), "{said}");
    }
}
