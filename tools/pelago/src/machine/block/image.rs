//! The bytes of a disk, of which only what is not zero takes memory. Copies share what is the same.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// What is kept or not kept as a whole: a block of most file systems.
const CHUNK_BYTES: usize = 4096;
/// A file is read in pieces of so many chunks.
const PIECE_CHUNKS: usize = 256;

/// See the module's head. Its size never changes.
#[derive(Clone, Default)]
pub struct Image {
    bytes: u64,
    /// By number; one that is missing is zeros.
    chunks: BTreeMap<u64, Arc<[u8; CHUNK_BYTES]>>,
}

impl Image {
    /// Zeros, so many bytes.
    pub fn zeros(bytes: u64) -> Image {
        Image { bytes, chunks: BTreeMap::new() }
    }

    /// What a file holds.
    pub fn read_file(path: &Path) -> Result<Image> {
        let problem = || format!("cannot read {}", path.display());
        let mut file = File::open(path).with_context(problem)?;
        let mut image = Image::zeros(file.metadata().with_context(problem)?.len());
        let (mut piece, mut offset) = (vec![0; PIECE_CHUNKS * CHUNK_BYTES], 0);
        while offset < image.bytes {
            let count = piece.len().min((image.bytes - offset) as usize);
            file.read_exact(&mut piece[..count]).with_context(problem)?;
            for chunk in piece[..count].chunks(CHUNK_BYTES) {
                if chunk.iter().any(|&byte| byte != 0) {
                    image.write(offset, chunk);
                }
                offset += chunk.len() as u64;
            }
        }
        Ok(image)
    }

    /// Makes a file of it, with holes for zeros.
    pub fn write_file(&self, path: &Path) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let file = File::create(path)?;
            file.set_len(self.bytes)?;
            for (number, chunk) in &self.chunks {
                let offset = number * CHUNK_BYTES as u64;
                let count = CHUNK_BYTES.min((self.bytes - offset) as usize);
                file.write_all_at(&chunk[..count], offset)?;
            }
            Ok(())
        };
        write().with_context(|| format!("cannot write {}; is the disk full?", path.display()))
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An error unless `bytes` bytes from `offset` on are of the disk.
    pub fn check(&self, offset: u64, bytes: u64) -> Result<()> {
        let end = offset.checked_add(bytes);
        ensure!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset} are beyond the disk's end");
        Ok(())
    }

    /// Copies what stands from `offset` on.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        for (number, inside, part) in pieces(offset, to.len() as u64) {
            let to = &mut to[part..part + inside.len()];
            match self.chunks.get(&number) {
                Some(chunk) => to.copy_from_slice(&chunk[inside]),
                None => to.fill(0),
            }
        }
    }

    /// Replaces what stands from `offset` on; panics beyond the end.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        assert!(self.check(offset, data.len() as u64).is_ok(), "a write beyond the disk's end");
        for (number, inside, part) in pieces(offset, data.len() as u64) {
            let chunk = self.chunks.entry(number).or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
            Arc::make_mut(chunk)[inside.clone()].copy_from_slice(&data[part..part + inside.len()]);
        }
    }

    /// Makes `bytes` bytes from `offset` on zeros; panics beyond the end.
    pub fn zero(&mut self, offset: u64, bytes: u64) {
        assert!(self.check(offset, bytes).is_ok(), "zeros beyond the disk's end");
        for (number, inside, _) in pieces(offset, bytes) {
            if inside.len() == CHUNK_BYTES {
                self.chunks.remove(&number);
            } else if let Some(chunk) = self.chunks.get_mut(&number) {
                Arc::make_mut(chunk)[inside].fill(0);
            }
        }
    }
}

/// Cuts a stretch at chunks: number of each, what of it is meant, and where that is in the stretch.
fn pieces(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let chunk = CHUNK_BYTES as u64;
    let numbers = if bytes == 0 { 0..0 } else { offset / chunk..(offset + bytes).div_ceil(chunk) };
    numbers.map(move |number| {
        let start = number * chunk;
        let (from, to) = (offset.max(start), (offset + bytes).min(start + chunk));
        (number, (from - start) as usize..(to - start) as usize, (from - offset) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 3 * CHUNK_BYTES + 100;

    proptest! {
        #[test]
        fn it_is_what_a_plain_vector_is(
            steps in prop::collection::vec((0..BYTES, 0..2 * CHUNK_BYTES, any::<u8>()), 0..20),
        ) {
            let (mut image, mut plain) = (Image::zeros(BYTES as u64), vec![0; BYTES]);
            for (offset, count, byte) in steps {
                let count = count.min(BYTES - offset);
                plain[offset..offset + count].fill(byte);
                match byte {
                    0 => image.zero(offset as u64, count as u64),
                    _ => image.write(offset as u64, &vec![byte; count]),
                }
                let mut read = vec![1; count];
                image.read(offset as u64, &mut read);
                prop_assert_eq!(read, vec![byte; count]);
            }
            let mut read = vec![1; BYTES];
            image.read(0, &mut read);
            prop_assert_eq!(&read, &plain);
            let file = tempfile::NamedTempFile::new().unwrap();
            image.write_file(file.path()).unwrap();
            prop_assert_eq!(&std::fs::read(file.path()).unwrap(), &plain);
            Image::read_file(file.path()).unwrap().read(0, &mut read);
            prop_assert_eq!(&read, &plain);
        }
    }

    #[test]
    fn nothing_is_beyond_the_end() {
        let image = Image::zeros(1000);
        assert!(image.check(0, 1000).is_ok() && image.check(1000, 0).is_ok());
        assert!(image.check(1, 1000).is_err() && image.check(u64::MAX, 2).is_err());
    }
}
