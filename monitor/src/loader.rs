//! Puts programs into domains. Code and constants of a program are loaded once and shared by all its instances; data is a copy.

use alloc::vec::Vec;

use abi::layout::{STACK_TOP, protection};
use abi::{Error, Handle, PAGE_BYTES};
use contracts::monitor::MonitorError;

use crate::machine::Machine;
use crate::program::{self, Piece};
use crate::{Book, archive, refused};

/// Pages of the first context's stack; they appear when touched.
const STACK_PAGES: u64 = 64;

/// A program in memory.
pub(crate) struct Loaded {
    pub entry: u64,
    pieces: Vec<(Handle, u64, u64, u64)>,
}

impl<M: Machine> Book<M> {
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
                Ok(segment) => pieces.push((segment, piece.address, piece.pages, piece.protection)),
                Err(error) => {
                    pieces.into_iter().for_each(|(segment, ..)| self.machine.drop(segment));
                    return Err(refused(error));
                }
            }
        }
        self.programs.insert(name.into(), Loaded { entry: program.entry, pieces });
        Ok(program.entry)
    }

    fn piece(&mut self, piece: &Piece<'_>) -> Result<Handle, Error> {
        let (segment, _) = self.machine.segment(piece.pages, false)?;
        if let Err(error) = self.machine.fill(segment, piece.offset, piece.bytes) {
            self.machine.drop(segment);
            return Err(error);
        }
        Ok(segment)
    }

    /// Maps program and stack into a domain. `load` went before.
    pub(crate) fn place(&mut self, name: &str, ram: Handle, range: Handle) -> Result<(), Error> {
        let pieces = self.programs.get(name).map(|loaded| loaded.pieces.clone()).unwrap_or_default();
        for (segment, address, pages, rights) in pieces {
            let own = if rights & protection::WRITE != 0 { Some(self.machine.copy(ram, segment)?) } else { None };
            let mapped = self.machine.map(range, address, own.unwrap_or(segment), 0, pages, rights);
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
