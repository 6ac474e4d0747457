//! The neighbour: it keeps a secret, answers whether its memory is as it left it, and gives pages
//! full of the secret back to the kernel.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;

use abi::layout::protection;
use abi::{Error, Handle};
use contract::contract;
use runtime::{Peer, Start};
use serde::{Deserialize, Serialize};

use crate::secret::{Secret, WORDS};

/// Start of the components' names.
pub const COMPONENT: &str = "neighbour";
/// Pages that it keeps.
const KEPT: u64 = 16;
/// Pages that it takes, fills and gives back each time it is asked.
const REUSED_PAGES: u64 = 12;
/// Past what loader and runtime map.
const PLACE: u64 = abi::layout::REGIONS + (3 << 38);

/// What is wrong with the neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookError {
    /// A word of its memory is not what it wrote: its number, and what stands there.
    Changed(u64, u64),
    /// A fresh page was not all zeros: what was seen.
    NotZero(u64),
    /// A call of its own was refused, by the error's number.
    Refused(u8),
    /// So many slots are taken that it did not take.
    Slots(u64),
}

/// A neighbour of a fuzzer. Order: as sent. Limits: none. Rights: the fuzzer's only.
#[contract(name = "neighbour", version = 1)]
pub trait Looks {
    /// Looks at all its memory, takes some pages and gives them back with its secret in them; how
    /// many words were as they should be.
    #[op]
    async fn look(&self, seed: u64) -> Result<u64, LookError>;
}

struct Neighbour {
    kept: Vec<Cell<u64>>,
    secret: Secret,
    lowest: u64,
}

/// The lowest free slot.
pub fn lowest_slot() -> Result<u64, Error> {
    let probe = sys::cap_copy(Handle::SELF_RAM, abi::Rights::READ)?;
    sys::cap_drop(probe).map(|()| probe.0)
}

impl Neighbour {
    fn new(seed: u64) -> Result<Neighbour, Error> {
        let secret = Secret::from_seed(seed);
        let kept = (0..KEPT * WORDS).map(|number| Cell::new(secret.word(number))).collect();
        Ok(Neighbour { kept, secret, lowest: lowest_slot()? })
    }

    fn look(&self) -> Result<u64, LookError> {
        for (number, word) in (0..).zip(&self.kept) {
            if word.get() != self.secret.word(number) {
                return Err(LookError::Changed(number, word.get()));
            }
        }
        self.reuse_pages()?;
        let lowest = lowest_slot()?;
        if lowest == self.lowest { Ok(KEPT * WORDS) } else { Err(LookError::Slots(lowest)) }
    }

    /// Takes pages, which must be zero, and gives them back with the secret in them: the next one
    /// who gets them must not see it.
    fn reuse_pages(&self) -> Result<(), LookError> {
        let (segment, _) = sys::segment_alloc(Handle::SELF_RAM, REUSED_PAGES, 0)?;
        sys::range_map(Handle::SELF_RANGE, PLACE, segment, 0, REUSED_PAGES, protection::READ | protection::WRITE)?;
        let mut seen = 0;
        for number in 0..REUSED_PAGES * WORDS {
            let word = (PLACE + number * 8) as *mut u64;
            // SAFETY: mapped just now, by nobody else, for reading and writing.
            unsafe {
                seen |= word.read_volatile();
                word.write_volatile(self.secret.word(number));
            }
        }
        // SAFETY: nobody refers to it.
        unsafe { sys::range_unmap(Handle::SELF_RANGE, PLACE, REUSED_PAGES) }?;
        sys::cap_drop(segment)?;
        if seen == 0 { Ok(()) } else { Err(LookError::NotZero(seen)) }
    }
}

impl From<Error> for LookError {
    fn from(error: Error) -> LookError {
        LookError::Refused(error as u8)
    }
}

struct Server {
    made: core::cell::OnceCell<Neighbour>,
}

impl LooksServer for Server {
    async fn look(&self, _peer: &Peer, seed: u64) -> Result<u64, LookError> {
        if self.made.get().is_none() {
            let _ = self.made.set(Neighbour::new(seed)?);
        }
        self.made.get().map_or(Ok(0), Neighbour::look)
    }
}

/// Serves for ever.
pub async fn serve(start: Start) {
    let server = Rc::new(Server { made: core::cell::OnceCell::new() });
    let mut incoming = start.incoming(NAME);
    start.serving();
    loop {
        let channel = incoming.next().await;
        runtime::spawn(serve_looks(server.clone(), channel));
    }
}
