//! The PVH start info: what the loader put into memory before it jumped to us (Xen's
//! public/arch-x86/hvm/start_info.h).
//!
//! Everything in it is a claim: pointers are followed only through `read`, counts are bounded.

use crate::memory::PhysRange;

const MAGIC: u32 = 0x336e_c578;
const ENTRIES_MAX: usize = 128;
const COMMAND_LINE_BYTES_MAX: usize = super::info::COMMAND_LINE_BYTES;

/// Reads physical memory; `None` where there is none.
pub type Read<'a> = super::acpi::Read<'a>;

/// What kind of memory an entry of the map is; values as in E820.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ordinary memory.
    Ram,
    /// Anything else.
    Other,
}

/// The decoded structure, still pointing into the loader's memory.
#[derive(Clone, Copy)]
pub struct StartInfo<'a> {
    map: &'a [u8],
    /// The command line without its terminator; empty if there is none.
    pub command_line: &'a [u8],
    /// The first module: our boot archive. Empty if there is none.
    pub archive: PhysRange,
    /// Physical address of ACPI's root pointer; 0 if unknown.
    pub rsdp: u64,
}

/// Why the start info cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// No PVH start info where the loader said: not started by a PVH loader.
    Magic,
    /// Version 0 has no memory map: the loader is too old.
    NoMemoryMap,
}

impl<'a> StartInfo<'a> {
    /// Decodes the structure at physical address `at`.
    pub fn decode(at: u64, read: Read<'a>) -> Result<StartInfo<'a>, Defect> {
        let head = read(at, 56).ok_or(Defect::Magic)?;
        if field32(head, 0) != MAGIC {
            return Err(Defect::Magic);
        }
        let entries = (field32(head, 48) as usize).min(ENTRIES_MAX);
        if field32(head, 4) < 1 || entries == 0 {
            return Err(Defect::NoMemoryMap);
        }
        let map = read(field64(head, 40), entries * 24).ok_or(Defect::NoMemoryMap)?;
        let archive = match field32(head, 12) {
            0 => PhysRange::default(),
            _ => read(field64(head, 16), 16)
                .map_or(PhysRange::default(), |module| PhysRange::new(field64(module, 0), field64(module, 8))),
        };
        Ok(StartInfo { map, command_line: text_at(field64(head, 24), read), archive, rsdp: field64(head, 32) })
    }

    /// The memory map, in the loader's order.
    pub fn memory(&self) -> impl Iterator<Item = (PhysRange, Kind)> + 'a {
        self.map.chunks_exact(24).map(|entry| {
            let kind = if field32(entry, 16) == 1 { Kind::Ram } else { Kind::Other };
            (PhysRange::new(field64(entry, 0), field64(entry, 8)), kind)
        })
    }
}

/// A zero-terminated string of bounded length.
fn text_at<'a>(at: u64, read: Read<'a>) -> &'a [u8] {
    if at == 0 {
        return &[];
    }
    // The terminator may stand just before the end of readable memory, so ask for less when the
    // whole bound is refused.
    let text = (0..=12).find_map(|halvings| read(at, COMMAND_LINE_BYTES_MAX >> halvings)).unwrap_or(&[]);
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    &text[..end]
}

/// The caller has checked that the slice is long enough.
fn field32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

fn field64(bytes: &[u8], offset: usize) -> u64 {
    u64::from(field32(bytes, offset)) | u64::from(field32(bytes, offset + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut memory = vec![0u8; 0x1000];
        let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC.to_le_bytes());
        put(4, &1u32.to_le_bytes());
        put(12, &1u32.to_le_bytes());
        for (at, value) in [(16, 0x100u64), (24, 0x200), (32, 0x300), (40, 0x400)] {
            put(at, &value.to_le_bytes());
        }
        put(48, &2u32.to_le_bytes());
        put(0x100, &0x20_0000u64.to_le_bytes());
        put(0x108, &0x1234u64.to_le_bytes());
        put(0x200, b"one two\0three");
        put(0x400, &[0; 8]);
        put(0x408, &0x9_fc00u64.to_le_bytes());
        put(0x410, &[1]);
        put(0x418, &0xb000_0000u64.to_le_bytes());
        put(0x420, &0x1000u64.to_le_bytes());
        put(0x428, &[2]);
        memory
    }

    #[test]
    fn decodes_and_refuses() {
        let memory = sample();
        let read = |at: u64, bytes: usize| memory.get(at as usize..(at as usize).checked_add(bytes)?);
        let info = StartInfo::decode(0, &read).unwrap();
        assert_eq!((info.command_line, info.rsdp), (&b"one two"[..], 0x300));
        assert_eq!(info.archive, PhysRange::new(0x20_0000, 0x1234));
        let map: Vec<_> = info.memory().collect();
        assert_eq!(map, [(PhysRange::new(0, 0x9fc00), Kind::Ram), (PhysRange::new(0xb000_0000, 0x1000), Kind::Other)]);
        assert_eq!(StartInfo::decode(8, &read).err(), Some(Defect::Magic));
        assert_eq!(StartInfo::decode(u64::MAX, &read).err(), Some(Defect::Magic));
    }

    #[test]
    fn corrupted_bytes_never_panic() {
        let good = sample();
        for at in 0..64 {
            let mut bad = good.clone();
            bad[at] = 0xff;
            let read = |at: u64, bytes: usize| bad.get(at as usize..(at as usize).checked_add(bytes)?);
            if let Ok(info) = StartInfo::decode(0, &read) {
                assert!(info.memory().count() <= ENTRIES_MAX && info.command_line.len() <= COMMAND_LINE_BYTES_MAX);
            }
        }
    }

    #[test]
    fn what_a_loader_leaves_out_is_not_there() {
        let decode = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut memory = sample();
            change(&mut memory);
            let read = |at: u64, bytes: usize| memory.get(at as usize..(at as usize).checked_add(bytes)?);
            StartInfo::decode(0, &read).map(|info| (info.archive, info.rsdp, info.command_line.len()))
        };
        let archive = PhysRange::new(0x20_0000, 0x1234);
        assert_eq!(decode(&|_| ()), Ok((archive, 0x300, 7)));
        assert_eq!(decode(&|memory| memory[4] = 2), Ok((archive, 0x300, 7)), "a newer version");
        assert_eq!(decode(&|memory| memory[12] = 0), Ok((PhysRange::default(), 0x300, 7)), "no module");
        assert_eq!(decode(&|memory| memory[36] = 1), Ok((archive, 0x1_0000_0300, 7)));
        assert_eq!(decode(&|memory| memory[4] = 0), Err(Defect::NoMemoryMap));
        assert_eq!(decode(&|memory| memory[48] = 0), Err(Defect::NoMemoryMap));
        assert_eq!(decode(&|memory| memory[24..28].fill(0)), Ok((archive, 0x300, 0)), "no command line");
    }
}
