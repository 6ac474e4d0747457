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
    use crate::tests::fake::code;

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
        assert!(decode(&code(PIECES_MAX as u64 + 1)).is_err());
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
