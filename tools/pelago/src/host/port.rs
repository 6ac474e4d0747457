//! TCP ports of this machine.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Ports that are looked at for one that was not given before.
const TRIES: usize = 1000;
/// Those that were given: whom one was given may not listen there yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A TCP port of this machine that nobody has now; this process gives none twice.
pub fn free() -> Result<u16> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..TRIES {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let port = listener.local_addr()?.port();
        if given.insert(port) {
            return Ok(port);
        }
    }
    bail!("each of {TRIES} free ports was given before, {} in all: run fewer scenarios at a time", given.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of some 30,000 that there are so many would be given twice some forty times.
    #[test]
    fn no_port_is_given_twice() {
        const MANY: usize = 1500;
        let ports: BTreeSet<u16> = (0..MANY).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), MANY);
    }
}
