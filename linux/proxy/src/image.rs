//! Executable files: from the first bytes of an ELF file to a plan of what to map where.
//!
//! The file may be hostile: every number is checked for overflow, order, size and place before it
//! is used. The plan then cannot fail for reasons of the file, only for lack of memory. Relocation
//! is the program's own (static PIE) or its interpreter's.

use alloc::string::String;
use alloc::vec::Vec;
use elf::abi as elf_abi;
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::segment::SegmentTable;

use crate::errno::Errno;
use crate::memory::{LOW_END, LOWEST, PAGE, PIE_BASE, protection, round_up};

/// How much of the file's start [`plan`] must see: headers lie within.
pub const HEAD_BYTES: usize = 4096;
/// Most loadable parts.
pub const PARTS_MAX: usize = 16;
/// Largest image in memory: a segment's limit.
pub const IMAGE_BYTES_MAX: u64 = abi::layout::SEGMENT_PAGES_MAX * PAGE;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;

/// One loadable part, page-rounded, relative to the load base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First address (page-aligned).
    pub start: u64,
    /// End (page-aligned).
    pub end: u64,
    /// `protection::*`.
    pub protection: u32,
    /// Where file bytes begin in memory, how many, and their place in the file. The rest is zero.
    pub data: u64,
    /// Bytes from the file.
    pub file_bytes: u64,
    /// Offset in the file.
    pub file_offset: u64,
}

/// A checked executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Parts in ascending order, not overlapping.
    pub parts: Vec<Part>,
    /// Must be loaded at its own addresses (base 0)?
    pub fixed: bool,
    /// Entry point, relative to the base.
    pub entry: u64,
    /// Program headers in memory, relative to the base (0 = not mapped).
    pub headers: u64,
    /// Their number.
    pub header_count: u64,
    /// Offset and bytes of the interpreter's path in the file.
    pub interpreter: Option<(u64, u64)>,
}

impl Image {
    /// First address and end of all parts together.
    pub fn span(&self) -> (u64, u64) {
        let start = self.parts.first().map_or(0, |part| part.start);
        (start, self.parts.last().map_or(0, |part| part.end))
    }

    /// Where to load it when nothing else says: 0 for fixed ones.
    pub fn base(&self) -> u64 {
        if self.fixed { 0 } else { PIE_BASE }
    }
}

/// Checks `head` (the first [`HEAD_BYTES`] of the file, or all of it) of a file of `file_bytes`.
/// `ENOEXEC` for anything we cannot load.
pub fn plan(head: &[u8], file_bytes: u64) -> Result<Image, Errno> {
    decode(head, file_bytes).ok_or(Errno::ENOEXEC)
}

fn decode(head: &[u8], file_bytes: u64) -> Option<Image> {
    let head = head.get(..head.len().min(HEAD_BYTES))?;
    // The library splits off the identification without looking whether there is one.
    head.get(..HEADER_BYTES)?;
    let ident = parse_ident::<LittleEndian>(head).ok()?;
    if ident.1 != Class::ELF64 {
        return None;
    }
    let header = FileHeader::parse_tail(ident, head.get(elf_abi::EI_NIDENT..HEADER_BYTES)?).ok()?;
    let known = header.e_machine == elf_abi::EM_X86_64 && u64::from(header.e_phentsize) == PROGRAM_HEADER_BYTES;
    let fixed = match header.e_type {
        elf_abi::ET_EXEC if known => true,
        elf_abi::ET_DYN if known => false,
        _ => return None,
    };
    let table_start = usize::try_from(header.e_phoff).ok()?;
    let table_bytes = usize::from(header.e_phnum) * PROGRAM_HEADER_BYTES as usize;
    let table = head.get(table_start..table_start.checked_add(table_bytes)?)?;
    let segments = SegmentTable::new(LittleEndian, Class::ELF64, table);

    let mut image = Image {
        parts: Vec::new(),
        fixed,
        entry: header.e_entry,
        headers: 0,
        header_count: header.e_phnum.into(),
        interpreter: None,
    };
    for segment in segments.iter() {
        match segment.p_type {
            elf_abi::PT_LOAD if segment.p_memsz > 0 => {
                let part = part(&segment, file_bytes)?;
                let low = image.parts.last().map_or(if fixed { LOWEST } else { 0 }, |last| last.end);
                let limit = if fixed { LOW_END } else { IMAGE_BYTES_MAX };
                if part.start < low || part.end > limit || image.parts.len() == PARTS_MAX {
                    return None;
                }
                let headers_end = header.e_phoff.checked_add(table_bytes as u64)?;
                if segment.p_offset <= header.e_phoff
                    && headers_end <= segment.p_offset.checked_add(segment.p_filesz)?
                {
                    image.headers = segment.p_vaddr + (header.e_phoff - segment.p_offset);
                }
                image.parts.push(part);
            }
            elf_abi::PT_INTERP if (2..=256).contains(&segment.p_filesz) => {
                segment.p_offset.checked_add(segment.p_filesz).filter(|end| *end <= file_bytes)?;
                image.interpreter = Some((segment.p_offset, segment.p_filesz));
            }
            elf_abi::PT_INTERP => return None,
            _ => {}
        }
    }
    let (start, end) = image.span();
    let inside = |address: u64| start <= address && address < end;
    (end > start && end - start <= IMAGE_BYTES_MAX && inside(image.entry)).then_some(image)
}

fn part(segment: &elf::segment::ProgramHeader, file_bytes: u64) -> Option<Part> {
    let file_end = segment.p_offset.checked_add(segment.p_filesz)?;
    let end = round_up(segment.p_vaddr.checked_add(segment.p_memsz)?)?;
    if segment.p_filesz > segment.p_memsz || file_end > file_bytes {
        return None;
    }
    let bits = [
        (elf_abi::PF_R, protection::READ),
        (elf_abi::PF_W, protection::WRITE | protection::READ),
        (elf_abi::PF_X, protection::EXECUTE | protection::READ),
    ];
    let protection = bits.iter().filter(|(flag, _)| segment.p_flags & flag != 0).fold(0, |all, (_, bit)| all | bit);
    Some(Part {
        start: segment.p_vaddr & !(PAGE - 1),
        end,
        protection,
        data: segment.p_vaddr,
        file_bytes: segment.p_filesz,
        file_offset: segment.p_offset,
    })
}

/// The interpreter's path from its bytes in the file: ends with one zero, is UTF-8 and absolute.
pub fn interpreter_path(bytes: &[u8]) -> Result<String, Errno> {
    let text = bytes.strip_suffix(b"\0").and_then(|text| core::str::from_utf8(text).ok());
    text.filter(|text| text.starts_with('/') && !text.contains('\0')).map(String::from).ok_or(Errno::ENOEXEC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(kind: u16, parts: &[(u32, u32, u64, u64, u64, u64)]) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend(kind.to_le_bytes());
        file.extend(62u16.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        for word in [parts.first().map_or(0, |part| part.3), 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for half in [64u16, 56, parts.len() as u16, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        for (kind, flags, offset, address, file_bytes, memory_bytes) in parts {
            file.extend(kind.to_le_bytes());
            file.extend(flags.to_le_bytes());
            for word in [offset, address, address, file_bytes, memory_bytes, &4096] {
                file.extend(word.to_le_bytes());
            }
        }
        file
    }

    #[test]
    fn plans_ordinary_programs() {
        let file = program(2, &[(1, 5, 0, 0x40_0000, 0x1234, 0x1234), (1, 6, 0x1708, 0x40_2708, 0x100, 0x2000)]);
        let image = plan(&file, 0x10000).unwrap();
        assert!(image.fixed && image.headers == 0x40_0040 && image.span() == (0x40_0000, 0x40_5000));
        assert_eq!(
            image.parts[1],
            Part {
                start: 0x40_2000,
                end: 0x40_5000,
                protection: 3,
                data: 0x40_2708,
                file_bytes: 0x100,
                file_offset: 0x1708
            }
        );
        let file = program(3, &[(1, 5, 0, 0, 0x1000, 0x1000), (3, 4, 0x300, 0x300, 28, 28)]);
        let image = plan(&file, 0x10000).unwrap();
        assert!(!image.fixed && image.interpreter == Some((0x300, 28)) && image.base() == PIE_BASE);
        assert_eq!(interpreter_path(b"/lib64/ld-linux-x86-64.so.2\0").unwrap(), "/lib64/ld-linux-x86-64.so.2");
        assert_eq!(interpreter_path(b"ld.so\0"), Err(Errno::ENOEXEC));
    }

    /// The program header's flags are R 4, W 2, X 1; who may write or run may read.
    #[test]
    fn parts_may_be_used_as_their_flags_say() {
        for (flags, protection) in [(0, 0), (4, 1), (2, 3), (6, 3), (1, 5), (5, 5), (7, 7)] {
            let image = plan(&program(2, &[(1, flags, 0, 0x40_0000, 0x100, 0x100)]), 0x1000).unwrap();
            assert_eq!(image.parts[0].protection, protection, "{flags}");
        }
    }

    #[test]
    fn what_just_fits_is_loaded() {
        // Up to the highest address and the file's last byte; and what has no bytes is not there.
        let file = program(2, &[(1, 5, 0x200, LOW_END - 0x1000, 0x100, 0x1000), (1, 6, 0, 0, 0, 0)]);
        let image = plan(&file, 0x300).unwrap();
        assert_eq!((image.span(), image.parts.len()), ((LOW_END - 0x1000, LOW_END), 1));
        assert_eq!(image.headers, 0, "no part has them");
        assert_eq!(plan(&file, 0x2ff), Err(Errno::ENOEXEC));
        // Program headers, whose place a part need not begin with.
        let whole = 64 + 56;
        let part = |offset, bytes| program(2, &[(1, 4, offset, 0x40_0000 + offset, bytes, 0x1000)]);
        let headers = |offset, bytes| plan(&part(offset, bytes), 0x1000).unwrap().headers;
        assert_eq!([headers(0x20, whole - 0x20), headers(0x40, 56)], [0x40_0040; 2]);
        assert_eq!([headers(0x20, whole - 0x21), headers(0x41, 56)], [0; 2]);
        let second =
            |address| plan(&program(2, &[(1, 5, 0, 0x40_0000, 0x100, 0x100), (1, 6, 0, address, 8, 8)]), 0x1000);
        let end = 0x40_0000 + IMAGE_BYTES_MAX;
        assert_eq!((second(end - 8).is_ok(), second(end)), (true, Err(Errno::ENOEXEC)), "it is as large as may be");
        let interpreter = |bytes| plan(&program(3, &[(1, 5, 0, 0, 0x100, 0x100), (3, 4, 0, 0, bytes, bytes)]), 0x1000);
        assert_eq!([1, 2, 256, 257].map(|bytes| interpreter(bytes).is_ok()), [false, true, true, false]);
    }

    #[test]
    fn files_of_other_kinds_are_not_loaded() {
        for kind in [2, 3] {
            let good = program(kind, &[(1, 5, 0, 0x40_0000, 0x100, 0x1000)]);
            assert!(plan(&good, 0x1000).is_ok());
            // Class, machine, and bytes of a program header.
            for (at, byte) in [(4, 1), (18, 3), (54, 64)] {
                let mut other = good.clone();
                other[at] = byte;
                assert_eq!(plan(&other, 0x1000), Err(Errno::ENOEXEC), "{kind} {at}");
            }
            for (entry, is_inside) in [(0x3f_ffff, false), (0x40_0000, true), (0x40_0fff, true), (0x40_1000, false)] {
                let mut moved = good.clone();
                moved[24..32].copy_from_slice(&u64::to_le_bytes(entry));
                assert_eq!(plan(&moved, 0x1000).is_ok(), is_inside, "{entry:x}");
            }
        }
        // Shared objects, kinds that are none.
        assert_eq!(
            [0, 1, 4].map(|kind| plan(&program(kind, &[(1, 5, 0, 0x40_0000, 1, 1)]), 0x1000).is_ok()),
            [false; 3]
        );
    }

    #[test]
    fn refuses_hostile_headers() {
        type Part = (u32, u32, u64, u64, u64, u64);
        let bad: &[&[Part]] = &[
            &[],
            &[(1, 5, 0, 0x1000, 0x100, 0x100)],            // below the lowest address
            &[(1, 5, 0, LOW_END - 0x1000, 0x100, 0x2000)], // into the proxy
            &[(1, 5, 0, u64::MAX - 10, 0x100, 0x100)],     // end overflows
            &[(1, 5, u64::MAX - 10, 0x40_0000, 0x100, 0x100)], // file range overflows
            &[(1, 5, 0x1_0000, 0x40_0000, 1, 1)],          // past the file's end
            &[(1, 5, 0, 0x40_0000, 0x200, 0x100)],         // more file than memory
            &[(1, 5, 0, 0x40_0000, 0x100, 0x2000), (1, 5, 0, 0x40_1000, 0x10, 0x10)], // overlap
            &[(1, 5, 0, 0x40_0000, 0x100, 0x100), (3, 4, 0, 0, 1 << 40, 1 << 40)], // interpreter too long
        ];
        for parts in bad {
            assert_eq!(plan(&program(2, parts), 0x1_0000), Err(Errno::ENOEXEC), "{parts:x?}");
        }
        let good = program(2, &[(1, 5, 0, 0x40_0000, 0x100, 0x100)]);
        for length in 0..good.len() {
            assert_eq!(plan(&good[..length], 0x1_0000), Err(Errno::ENOEXEC));
        }
    }

    /// Any change of a byte or two gives a plan within bounds or an error, never a panic.
    #[test]
    fn survives_damaged_headers() {
        let good = program(
            3,
            &[(1, 5, 0, 0, 0x1234, 0x1234), (1, 6, 0x1708, 0x2708, 0x100, 0x2000), (3, 4, 0x300, 0x300, 28, 28)],
        );
        let mut seed = 99u64;
        for _ in 0..200_000 {
            let mut file = good.clone();
            for _ in 0..2 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (seed >> 33) as usize % file.len();
                file[at] = (seed >> 24) as u8;
            }
            if let Ok(image) = plan(&file, 0x1_0000) {
                let (start, end) = image.span();
                assert!(end - start <= IMAGE_BYTES_MAX);
                assert!(image.parts.windows(2).all(|pair| pair[0].end <= pair[1].start));
                assert!(
                    image.parts.iter().all(|part| part.data + part.file_bytes <= part.end
                        && part.file_offset + part.file_bytes <= 0x1_0000)
                );
            }
        }
    }
}
