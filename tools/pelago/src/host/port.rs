//! TCP ports of this machine.

use anyhow::{Context, Result};

/// A TCP port of this machine that nobody has now.
pub fn free() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?.port())
}
