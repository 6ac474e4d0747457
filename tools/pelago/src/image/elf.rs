//! What the tool asks of ELF files: what a Linux program needs beside itself, and a copy without
//! what only debuggers read.

use anyhow::{Context, Result, bail};
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_X86_64, FileHeader64, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind};

type Header = FileHeader64<Endianness>;

/// What a program names at its link time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The dynamic loader, for instance `/lib64/ld-linux-x86-64.so.2`; none for a static program.
    pub interpreter: Option<String>,
    /// Names of libraries.
    pub libraries: Vec<String>,
    /// Its DT_RPATH: folders to look in first, for what its libraries need too; may contain
    /// `$ORIGIN`.
    pub path: Vec<String>,
    /// Its DT_RUNPATH: folders for its own libraries, in place of the other.
    pub run_path: Vec<String>,
}

/// Does a file begin as a program or library for this processor does?
pub fn is_ours(head: &[u8]) -> bool {
    let machine = EM_X86_64.0.to_le_bytes();
    head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&machine[..])
}

/// Reads what the program or library needs. Errors say why it cannot run in the guest.
pub fn needs(data: &[u8]) -> Result<Needs> {
    let kind = FileKind::parse(data).ok();
    if !matches!(kind, Some(FileKind::Elf64)) {
        bail!("it is not a 64-bit ELF program");
    }
    let header = Header::parse(data).context("its ELF header is damaged")?;
    let endian = header.endian().context("its ELF header is damaged")?;
    if header.e_machine.get(endian) != EM_X86_64 {
        bail!("it is for another processor than x86-64");
    }
    let mut needs = Needs::default();
    for segment in header.program_headers(endian, data).context("its program headers are damaged")? {
        if let Some(path) = segment.interpreter(endian, data).context("its interpreter's name is damaged")? {
            needs.interpreter = Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    let sections = header.sections(endian, data).context("its section headers are damaged")?;
    let Some((entries, strings)) = sections.dynamic(endian, data).context("its dynamic section is damaged")? else {
        return Ok(needs);
    };
    let strings = sections.strings(endian, data, strings).context("its dynamic strings are damaged")?;
    for entry in entries {
        let text = || entry.string(endian, strings).map(|text| String::from_utf8_lossy(text).into_owned());
        match entry.tag(endian) {
            DT_NEEDED => needs.libraries.push(text().context("a library's name is damaged")?),
            tag @ (DT_RPATH | DT_RUNPATH) => {
                let folders = if tag == DT_RPATH { &mut needs.path } else { &mut needs.run_path };
                folders.extend(text().context("its library path is damaged")?.split(':').map(str::to_owned));
            }
            _ => {}
        }
    }
    Ok(needs)
}

/// A copy with the loadable bytes only. Linkers put segments first and sections for debuggers
/// behind them, so the copy is a prefix whose header no longer points at a section table.
pub fn without_debug(data: &[u8]) -> Result<Vec<u8>> {
    let header = Header::parse(data).context("not an ELF file")?;
    let endian = header.endian().context("not an ELF file")?;
    let segments = header.program_headers(endian, data).context("damaged program headers")?;
    let headers_end = header.e_phoff.get(endian) + segments.len() as u64 * size_of_val(&segments[0]) as u64;
    let end = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == PT_LOAD)
        .map(|segment| segment.p_offset(endian) + segment.p_filesz(endian))
        .fold(headers_end, u64::max);
    let mut copy = data.get(..end as usize).context("a segment reaches past the file's end")?.to_vec();
    // e_shoff is the 8 bytes at 0x28; e_shnum and e_shstrndx the four at 0x3c (System V ABI, ELF-64
    // object file format).
    copy[0x28..0x30].fill(0);
    copy[0x3c..0x40].fill(0);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_program() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_dynamic_program_names_its_loader_and_libraries() {
        let needs = needs(&this_program()).unwrap();
        assert_eq!(needs.interpreter.as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(needs(b"#!/bin/sh").is_err());
        assert!(needs(&this_program()[..100]).is_err());
        assert!(is_ours(&this_program()) && !is_ours(b"#!/bin/sh") && !is_ours(b"\x7fELF\x02\x01"));
    }

    #[test]
    fn the_copy_keeps_all_segments() {
        let whole = this_program();
        let copy = without_debug(&whole).unwrap();
        assert!(copy.len() < whole.len());
        let header = Header::parse(copy.as_slice()).unwrap();
        let endian = header.endian().unwrap();
        for segment in header.program_headers(endian, copy.as_slice()).unwrap() {
            segment.data(endian, copy.as_slice()).unwrap();
        }
    }
}
