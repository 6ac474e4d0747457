//! A network namespace with a tap: a network of a test's own, where the guest has every port and
//! the host is a peer like any other.
//!
//! The emulator's user network forwards with a backlog of 1 and answers before the guest does, so
//! tests with many connections need this. It takes root and /dev/net/tun; [`Namespace::create`]
//! says which is missing. Only a thread that called [`Namespace::enter`] is inside.

use crate::host::child;
use crate::host::skip::Skip;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The tap's name inside.
pub const TAP: &str = "tap0";
const HOST_WITH_LENGTH: &str = "10.77.0.1/24";
/// The guest's address inside.
pub const GUEST: &str = "10.77.0.2";
/// Gives the guest its address, as it is written on the kernel's command line.
pub const COMMAND_LINE: &str = "pelago.ip=10.77.0.2/24,10.77.0.1";

static CREATED: AtomicU32 = AtomicU32::new(0);

/// Removed with this value; a process inside keeps it alive until it ends.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one. Where that cannot be done the error is a [`Skip`] that says what is missing.
    pub fn create() -> Result<Namespace> {
        if crate::host::path::find("ip").is_none() {
            bail!(Skip::Package { program: "ip", package: "iproute2" });
        }
        if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
            bail!(Skip::Cannot(format!("/dev/net/tun cannot be opened ({error})")));
        }
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("pelago-{}-{number}", std::process::id());
        if let Err(error) = ip(&["netns", "add", &name]) {
            bail!(Skip::Cannot(format!("network namespaces need root ({error:#})")));
        }
        let namespace = Namespace { name };
        for words in [
            &["tuntap", "add", "dev", TAP, "mode", "tap"][..],
            &["addr", "add", HOST_WITH_LENGTH, "dev", TAP],
            &["link", "set", TAP, "up"],
        ] {
            let inside = ["-n", &namespace.name].iter().chain(words).copied().collect::<Vec<_>>();
            if let Err(error) = ip(&inside) {
                bail!(Skip::Cannot(format!("a tap cannot be made ({error:#})")));
            }
        }
        Ok(namespace)
    }

    /// For the emulator.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread in; sockets it makes from now on are of this network.
    pub fn enter(&self) -> Result<()> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).context("cannot enter the network namespace")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Left behind it would cost a few kilobytes; there is nobody to tell.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = child::output(Command::new("ip").args(words), child::SHORT)?;
    if !output.status.success() {
        bail!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
