//! Takes the memory of its cores, to the page.

use abi::{Error, Handle, layout::segment};
use runtime::{Program, Start};

/// Free pages left on the last core: less than a component needs to be made (servers/spawn).
const LEFT_LAST: u64 = 320;
/// And on the others: enough for one, and less than they would have to spare to give some away
/// (servers/memory).
const LEFT: u64 = 1800;
/// Pages taken at once.
const PIECE: u64 = 512;

/// Takes what is free but for these, and keeps it.
pub(crate) fn hold(start: &Start, program: &Program) {
    let left = if program.number + 1 == program.cores.len() { LEFT_LAST } else { LEFT };
    match take(left) {
        Ok(free) => runtime::log!("core {} has {free} pages left", start.core()),
        Err(error) => runtime::log!("failed: {}", error.name()),
    }
}

fn take(left: u64) -> Result<u64, Error> {
    let mut piece = PIECE;
    loop {
        let (_, _, free) = sys::ram_stat(Handle::SELF_RAM)?;
        if free <= left || piece == 0 {
            return Ok(free);
        }
        // Pages of a contiguous segment are there at once.
        match sys::segment_alloc(Handle::SELF_RAM, piece.min(free - left), segment::CONTIGUOUS) {
            Ok(_) => {}
            Err(Error::NoMemory) => piece /= 2,
            Err(error) => return Err(error),
        }
    }
}
