//! Which pieces of memory an ELF program wants: decoded and checked, nothing loaded.
//!
//! Taken: statically linked x86-64 executables at fixed addresses (`lib/link`), each piece of their
//! own pages, none writable and executable.

use alloc::vec::Vec;

use abi::PAGE_BYTES;
use abi::layout::{START_INFO, USER_START, protection};
use elf::ElfBytes;
use elf::abi::{EM_X86_64, ET_EXEC, PF_R, PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;

/// Most pieces of a program: text, constants, data, and some to spare.
const PIECES_MAX: usize = 8;
/// Most pages of one piece: 256 MiB.
const PIECE_PAGES_MAX: u64 = 1 << 16;

/// Why a file is no program for us. The text goes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadProgram(pub &'static str);

/// A run of pages with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// First page's address.
    pub address: u64,
    /// Pages.
    pub pages: u64,
    /// Bits of `abi::layout::protection`.
    pub protection: u64,
    /// Where `bytes` begin in the first page; zeros around them.
    pub offset: u64,
    /// From the file.
    pub bytes: &'a [u8],
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// First instruction.
    pub entry: u64,
    /// In ascending order, disjoint.
    pub pieces: Vec<Piece<'a>>,
}

/// Checks a file and says what it wants.
pub fn decode(file: &[u8]) -> Result<Program<'_>, BadProgram> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| BadProgram("no ELF file"))?;
    if elf.ehdr.e_machine != EM_X86_64 || elf.ehdr.e_type != ET_EXEC {
        return Err(BadProgram("no x86-64 executable at fixed addresses"));
    }
    let segments = elf.segments().ok_or(BadProgram("no program headers"))?;
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    for header in segments.iter().filter(|header| header.p_type == PT_LOAD && header.p_memsz > 0) {
        let piece = piece(file, &header)?;
        let last_end = pieces.last().map_or(USER_START, |last| last.address + last.pages * PAGE_BYTES);
        if piece.address < last_end {
            return Err(BadProgram("segments share a page or are not in order"));
        }
        if pieces.len() == PIECES_MAX {
            return Err(BadProgram("too many segments"));
        }
        pieces.push(piece);
    }
    let entry = elf.ehdr.e_entry;
    let runs = |piece: &Piece<'_>| {
        piece.protection & protection::EXECUTE != 0
            && (piece.address..piece.address + piece.pages * PAGE_BYTES).contains(&entry)
    };
    if !pieces.iter().any(runs) {
        return Err(BadProgram("the entry is not in its code"));
    }
    Ok(Program { entry, pieces })
}

fn piece<'a>(file: &'a [u8], header: &elf::segment::ProgramHeader) -> Result<Piece<'a>, BadProgram> {
    let end = header.p_vaddr.checked_add(header.p_memsz).ok_or(BadProgram("a segment wraps"))?;
    // What lies from START_INFO on is the loader's.
    if header.p_filesz > header.p_memsz || end > START_INFO {
        return Err(BadProgram("a segment lies outside the program's room"));
    }
    let from = usize::try_from(header.p_offset).map_err(|_| BadProgram("a segment is cut off"))?;
    let to = from.checked_add(header.p_filesz as usize).ok_or(BadProgram("a segment is cut off"))?;
    let bytes = file.get(from..to).ok_or(BadProgram("a segment is cut off"))?;
    let mut rights = 0;
    for (flag, bit) in [(PF_R, protection::READ), (PF_W, protection::WRITE), (PF_X, protection::EXECUTE)] {
        rights |= if header.p_flags & flag != 0 { bit } else { 0 };
    }
    if rights & protection::READ == 0
        || rights & (protection::WRITE | protection::EXECUTE) == protection::WRITE | protection::EXECUTE
    {
        return Err(BadProgram("a segment is unreadable, or both writable and executable"));
    }
    let address = header.p_vaddr / PAGE_BYTES * PAGE_BYTES;
    let pages = (end - address).div_ceil(PAGE_BYTES);
    if pages > PIECE_PAGES_MAX {
        return Err(BadProgram("a segment is too large"));
    }
    Ok(Piece { address, pages, protection: rights, offset: header.p_vaddr - address, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::{Header, code, program};

    #[test]
    fn a_program_is_its_pieces() {
        let file = code(2);
        let program = decode(&file).unwrap();
        assert_eq!(program.entry, 0x40_0000);
        assert_eq!(program.pieces.len(), 2);
        let piece = program.pieces[0];
        assert_eq!((piece.address, piece.pages, piece.offset, piece.bytes.len()), (0x40_0000, 1, 0, 16));
        assert_eq!(piece.protection, protection::READ | protection::EXECUTE);
    }

    #[test]
    fn too_many_pieces_are_refused() {
        assert!(decode(&code(PIECES_MAX as u64)).is_ok());
        assert!(decode(&code(PIECES_MAX as u64 + 1)).is_err());
    }

    /// A program of some code, and of that piece.
    fn with(piece: Header) -> Vec<u8> {
        program(&[(5, 0x40_0000, 0x2000, 0x1000, 0x10), piece], 0x1010)
    }

    #[test]
    fn pieces_lie_one_after_the_other_each_on_pages_of_its_own() {
        let at = |address| with((4, address, 1, 0x1000, 0));
        assert!(decode(&at(0x40_2000)).is_ok() && decode(&at(0x7000_0000)).is_ok());
        for address in [0, 0xfff, 0x40_0000, 0x40_1fff, 0x30_0000] {
            assert!(decode(&at(address)).is_err(), "{address:#x}");
        }
        let first = |address| program(&[(4, address, 1, 0x1000, 0), (5, 0x40_0000, 1, 0x1000, 1)], 0x1010);
        assert_eq!(decode(&first(USER_START)).map(|program| program.pieces.len()), Ok(2));
        assert!(decode(&first(USER_START - 1)).is_err());
        // One of no bytes is none, wherever it is.
        let none = with((4, 0x10, 0, 0x1000, 0));
        assert_eq!(decode(&none).map(|program| program.pieces.len()), Ok(1));
    }

    #[test]
    fn a_piece_ends_before_what_the_loader_has_and_has_no_more_than_it_may() {
        let of = |address, memory, bytes| {
            let file = with((4, address, memory, 0x1000, bytes));
            decode(&file).map(|program| program.pieces[1].pages)
        };
        assert!(of(START_INFO - 0x1000, 0x1000, 0x10).is_ok());
        assert!(of(START_INFO - 0x1000, 0x1001, 0x10).is_err());
        assert!(of(START_INFO + 0x1000, 0x1000, 0x10).is_err());
        assert!(of(u64::MAX, 2, 0).is_err());
        assert!(of(0x50_0000, 0x10, 0x10).is_ok());
        assert!(of(0x50_0000, 0xf, 0x10).is_err() && of(0x50_0000, 0x20, 0x11).is_err());
        let most = PIECE_PAGES_MAX * PAGE_BYTES;
        assert_eq!(of(0x50_0000, most, 0), Ok(PIECE_PAGES_MAX));
        assert!(of(0x50_0000, most + 1, 0).is_err() && of(0x50_0001, most, 0).is_err());
        assert!(of(0x50_0000, 4 * most, 0).is_err());
    }

    #[test]
    fn every_piece_can_be_read_and_none_both_written_and_run() {
        let of = |flags| decode(&with((flags, 0x50_0000, 0x10, 0x1000, 0x10))).map(|it| it.pieces[1].protection);
        let (read, write, execute) = (protection::READ, protection::WRITE, protection::EXECUTE);
        assert_eq!([PF_R, PF_R | PF_W, PF_R | PF_X].map(of), [Ok(read), Ok(read | write), Ok(read | execute)]);
        for flags in [0, PF_W, PF_X, PF_W | PF_X, PF_R | PF_W | PF_X] {
            assert!(of(flags).is_err(), "{flags}");
        }
    }

    #[test]
    fn a_program_begins_in_its_code() {
        let at = |entry: u64| {
            let mut file = with((6, 0x50_0000, 0x1000, 0x1000, 0x10));
            file[24..32].copy_from_slice(&entry.to_le_bytes());
            decode(&file).map(|program| program.entry)
        };
        assert_eq!([0x40_0000, 0x40_1fff].map(at), [Ok(0x40_0000), Ok(0x40_1fff)]);
        for entry in [0, 0x3f_ffff, 0x40_2000, 0x50_0000] {
            assert!(at(entry).is_err(), "{entry:#x}");
        }
    }

    #[test]
    fn files_for_other_machines_and_of_other_kinds_are_refused() {
        for (at, value) in [(16, 3), (18, 3)] {
            let mut file = code(1);
            file[at] = value;
            assert!(decode(&file).is_err());
        }
    }

    /// Every byte of header damaged in several ways: an error or a program within bounds, never a
    /// panic.
    #[test]
    fn hostile_files_are_refused_or_bounded() {
        let good = code(2);
        for at in 0..64 + 2 * 56 {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Ok(program) = decode(&bad) {
                    assert!(program.pieces.iter().all(|piece| piece.address + piece.pages * PAGE_BYTES <= START_INFO
                        && piece.offset + piece.bytes.len() as u64 <= piece.pages * PAGE_BYTES));
                }
            }
        }
        for length in 0..good.len() {
            let _ = decode(&good[..length]);
        }
    }
}
