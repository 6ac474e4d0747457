//! Puts programs into domains. Code and constants are shown where they lie in the boot archive, to
//! all instances on all cores: not one byte of them is copied, if the archive has them on pages as
//! `tools` writes it, else once per core. Data is a copy.

use alloc::vec::Vec;

use abi::layout::{STACK_TOP, protection};
use abi::{Error, Handle, PAGE_BYTES};
use contracts::monitor::MonitorError;

use crate::machine::Machine;
use crate::program::{self, Piece};
use crate::{Registry, archive, refused};

/// Pages of the first context's stack; they appear when touched.
const STACK_PAGES: u64 = 64;

/// A program in memory.
pub(crate) struct Loaded {
    pub entry: u64,
    pieces: Vec<Shown>,
}

/// A piece of a program, and the pages that hold it.
#[derive(Clone, Copy)]
struct Shown {
    segment: Handle,
    first_page: u64,
    address: u64,
    pages: u64,
    protection: u64,
}

impl<M: Machine> Registry<M> {
    /// Loads a program once.
    pub(crate) fn load(&mut self, name: &str) -> Result<u64, MonitorError> {
        if let Some(loaded) = self.programs.get(name) {
            return Ok(loaded.entry);
        }
        let path = alloc::format!("{}/{name}", system::PROGRAM_FOLDER);
        let Some(file) = archive::file(self.archive, &path) else {
            self.machine_log(&alloc::format!("{path}: not in the boot archive"));
            return Err(MonitorError::BadProgram);
        };
        let program = program::decode(file).map_err(|bad| {
            self.machine_log(&alloc::format!("{path}: {}", bad.0));
            MonitorError::BadProgram
        })?;
        let mut pieces = Vec::new();
        for piece in &program.pieces {
            match self.piece(piece) {
                Ok(shown) => pieces.push(shown),
                Err(error) => {
                    let own = pieces.into_iter().map(|shown: Shown| shown.segment).filter(|it| *it != Handle::ARCHIVE);
                    own.for_each(|segment| self.machine.drop(segment));
                    return Err(refused(&self.machine, error));
                }
            }
        }
        self.programs.insert(name.into(), Loaded { entry: program.entry, pieces });
        Ok(program.entry)
    }

    fn piece(&mut self, piece: &Piece<'_>) -> Result<Shown, Error> {
        let &Piece { address, pages, protection, .. } = piece;
        if let Some(first_page) = self.in_place(piece) {
            return Ok(Shown { segment: Handle::ARCHIVE, first_page, address, pages, protection });
        }
        let (segment, _) = self.machine.segment(pages, false)?;
        if let Err(error) = self.machine.fill(segment, piece.offset, piece.bytes) {
            self.machine.drop(segment);
            return Err(error);
        }
        Ok(Shown { segment, first_page: 0, address, pages, protection })
    }

    /// The page of the archive from which a piece can be shown as it is. Around it the program then
    /// sees what the archive has there.
    fn in_place(&self, piece: &Piece<'_>) -> Option<u64> {
        let at = (piece.bytes.as_ptr() as u64).checked_sub(self.archive.as_ptr() as u64)? + self.facts.archive_offset;
        let is_whole = (piece.offset + piece.bytes.len() as u64).div_ceil(PAGE_BYTES) == piece.pages;
        let is_constant = piece.protection & protection::WRITE == 0;
        (is_constant && is_whole && at % PAGE_BYTES == piece.offset).then_some(at / PAGE_BYTES)
    }

    /// Maps program and stack into a domain. `load` went before.
    pub(crate) fn place(&mut self, name: &str, ram: Handle, range: Handle) -> Result<(), Error> {
        let pieces = self.programs.get(name).map(|loaded| loaded.pieces.clone()).unwrap_or_default();
        for Shown { segment, first_page, address, pages, protection } in pieces {
            let own = if protection & protection::WRITE != 0 { Some(self.machine.copy(ram, segment)?) } else { None };
            let mapped = self.machine.map(range, address, own.unwrap_or(segment), first_page, pages, protection);
            own.into_iter().for_each(|own| self.machine.drop(own));
            mapped?;
        }
        let stack = self.machine.segment_of(ram, STACK_PAGES)?;
        let bottom = STACK_TOP - STACK_PAGES * PAGE_BYTES;
        let mapped = self.machine.map(range, bottom, stack, 0, STACK_PAGES, protection::READ | protection::WRITE);
        self.machine.drop(stack);
        mapped
    }
}
