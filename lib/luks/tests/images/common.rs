//! A volume that is made here, and how tests change headers.

use luks::{AREA_BYTES, Budget, Error, Format, Formatted, HEAD_BYTES, Header, SectorBytes, Strength, VolumeKey};
use std::sync::LazyLock;

pub const PASSPHRASE: &[u8] = b"correct horse";
pub const DEVICE_BYTES: u64 = 20 << 20;
/// Bytes of a header that is made here.
pub const HEADER_BYTES: usize = 16 << 10;
/// So little that a test takes no time for it.
pub const CHEAP: Strength = Strength { memory_kib: 64, passes: 1, digest_iterations: 1000 };
/// What a cheap volume needs, and hardly more.
pub const SMALL: Budget = Budget { memory_kib: 128, filled_kib: 512, iterations: 10_000 };

/// Numbers that look random and are the same each time.
pub fn noise(seed: u64) -> impl FnMut(&mut [u8]) {
    let mut state = seed | 1;
    move |bytes| {
        for byte in bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
    }
}

pub fn make(sector: SectorBytes, strength: Strength) -> Formatted {
    let options = Format { device_bytes: DEVICE_BYTES, sector, passphrase: PASSPHRASE, strength };
    luks::format(&options, &mut noise(7)).unwrap()
}

/// The beginning of a device, with the area of slot 0.
pub fn laid_out(formatted: &Formatted) -> Vec<u8> {
    let mut image = vec![0; 512 << 10];
    for write in &formatted.writes {
        image[write.at as usize..][..write.bytes.len()].copy_from_slice(&write.bytes);
    }
    image
}

/// A cheap volume.
pub fn cheap() -> &'static [u8] {
    static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| laid_out(&make(SectorBytes::B4096, CHEAP)));
    &IMAGE
}

pub fn read(image: &[u8]) -> Result<Header, Error> {
    Header::read(&image[..image.len().min(HEAD_BYTES)], DEVICE_BYTES)
}

/// The key that a passphrase opens, by trying all slots that are within the image.
pub fn open(image: &[u8], passphrase: &[u8], mut budget: Budget) -> Result<Option<VolumeKey>, Error> {
    let header = read(image)?;
    for slot in header.slots() {
        let Some(area) = image.get(slot.area as usize..).and_then(|rest| rest.get(..AREA_BYTES)) else { continue };
        let key = header.open_slot(slot.number, passphrase, &mut area.to_vec(), &mut budget)?;
        if key.is_some() {
            return Ok(key);
        }
    }
    Ok(None)
}

/// Puts the checksum of a header right.
pub fn put_sum(header: &mut [u8]) {
    use sha2::{Digest, Sha256};
    header[448..512].fill(0);
    let sum = Sha256::digest(&*header);
    header[448..480].copy_from_slice(&sum);
}

/// Puts the checksums of both headers right.
pub fn put_sums(image: &mut [u8]) {
    [0, HEADER_BYTES].into_iter().for_each(|at| put_sum(&mut image[at..at + HEADER_BYTES]));
}

/// The JSON text of the first header.
pub fn json(image: &[u8]) -> String {
    let area = &image[4096..HEADER_BYTES];
    let end = area.iter().position(|byte| *byte == 0).unwrap_or(area.len());
    String::from_utf8_lossy(&area[..end]).into_owned()
}

/// The image with another JSON text in both headers, as much of it as there is room for.
pub fn with_json(image: &[u8], json: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    let json = &json[..json.len().min(HEADER_BYTES - 4096)];
    for at in [4096, HEADER_BYTES + 4096] {
        image[at..at + HEADER_BYTES - 4096].fill(0);
        image[at..at + json.len()].copy_from_slice(json);
    }
    put_sums(&mut image);
    image
}

/// The cheap volume with a piece of its JSON replaced, which is there.
pub fn replaced(old: &str, new: &str) -> Vec<u8> {
    let text = json(cheap());
    assert!(text.contains(old), "{old} is not in {text}");
    with_json(cheap(), text.replace(old, new).as_bytes())
}
