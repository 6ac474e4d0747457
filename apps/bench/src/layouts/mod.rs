//! Corey's memclone and mempass (section 8.2) over cores, in the three layouts of its figure 4:
//! what they are made of.
//!
//! `single`: all memory is in one range that all cores map; `separate`: each core maps for itself;
//! `mixed`: what is shared is in the range of all, what is a core's own in a range of its own.
//! `program` measures them as the paper does, with 100 MiB for each core; `load` has a few pages of
//! them, for the coherence model.

mod program;
mod ring;

use abi::layout::{lock, protection, range_stat};
use abi::{Error, Handle, PAGE_BYTES, Rights};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

pub use program::run;

/// Name of the program of several cores.
pub const NAME: &str = "layouts";
/// Pages of the common range: of the middle size.
pub(crate) const RANGE_PAGES: u64 = 512 * 512;
/// Where the common range is mapped, and a core's own memory: in the room of regions, past what the
/// other rows map there.
pub(crate) const COMMON: u64 = abi::layout::REGIONS + (3 << 38) + (2 << 30);
pub(crate) const OWN: u64 = COMMON + (1 << 30);
pub(crate) const READ_WRITE: u64 = protection::READ | protection::WRITE;

/// Where memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// One range of all.
    Single,
    /// Each core's own space.
    Separate,
    /// One range of all for what all use, a core's own for the rest.
    Mixed,
}

/// With the names of their rows.
pub(crate) const LAYOUTS: [(Layout, &str, &str); 3] = [
    (Layout::Single, "memclone/single", "mempass/single"),
    (Layout::Separate, "memclone/separate", "mempass/separate"),
    (Layout::Mixed, "memclone/mixed", "mempass/mixed"),
];

/// A core's names of what all use.
#[derive(Clone, Copy)]
pub(crate) struct Common {
    pub(crate) pool: Handle,
    pub(crate) range: Handle,
}

impl Common {
    /// Makes the range of all in a pool; its id there.
    pub(crate) fn make(pool: Handle) -> Result<u64, Error> {
        sys::share_range(pool, RANGE_PAGES, lock::SPIN, [0; 2], 0).map(|(_, id, _)| id)
    }

    /// Shows it.
    pub(crate) fn map(pool: Handle, id: u64) -> Result<Common, Error> {
        let range = sys::share_add(Handle::NONE, Handle::in_share(pool, id).ok_or(Error::NotFound)?, Rights::ALL)?;
        sys::range_nest(Handle::SELF_RANGE, COMMON, range, READ_WRITE)?;
        Ok(Common { pool, range })
    }

    /// Shows it no more.
    pub(crate) fn unmap(self) -> Result<(), Error> {
        unmap(Handle::SELF_RANGE, COMMON, RANGE_PAGES)?;
        sys::cap_drop(self.range)
    }

    /// How often somebody waited for its lock.
    pub(crate) fn waits(&self) -> Result<u64, Error> {
        sys::range_stat(self.range, range_stat::LOCK).map(|[_, waits, _]| waits)
    }
}

/// Writes a word into each page: `value`, and one more for each next.
#[inline(always)]
pub(crate) fn touch(address: u64, pages: u64, value: u64) {
    for page in 0..pages {
        // SAFETY: mapped read-write by the caller, and nobody else uses it now.
        unsafe { ((address + page * PAGE_BYTES) as *mut u64).write_volatile(value + page) };
    }
}

pub(crate) fn unmap(range: Handle, address: u64, pages: u64) -> Result<(), Error> {
    // SAFETY: only `touch` uses what is there.
    unsafe { sys::range_unmap(range, address, pages) }.map(drop)
}

/// The machine's cores with their nodes, in the order in which they take turns: it goes round the
/// nodes, so that the first few cores are of as many nodes as there are.
pub(crate) fn turns(cores: u64) -> Result<Vec<(u64, u64)>, Error> {
    let mut all = Vec::new();
    for core in 0..cores {
        all.push((core, sys::locality_get(core, core)?.1));
    }
    Ok(in_turn(all))
}

fn in_turn(cores: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let rank = |index: usize| cores[..index].iter().filter(|(_, node)| *node == cores[index].1).count();
    let mut ranked: Vec<_> = cores.iter().enumerate().map(|(index, &(core, node))| (rank(index), node, core)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, node, core)| (core, node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round_the_nodes() {
        let order = |nodes: &[u64]| -> Vec<u64> {
            in_turn((0..).zip(nodes.iter().copied()).collect()).into_iter().map(|(core, _)| core).collect()
        };
        assert_eq!(order(&[0, 0, 1, 1, 2, 2]), [0, 2, 4, 1, 3, 5]);
        // Of five cores on four nodes two are of one node, as the paper has it.
        assert_eq!(order(&[0, 0, 0, 1, 2, 3])[..5], [0, 3, 4, 5, 1]);
        assert_eq!(order(&[0; 3]), [0, 1, 2]);
    }
}
