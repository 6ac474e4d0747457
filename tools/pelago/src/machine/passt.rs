//! Ports of this machine that lead to the guest, by passt(1): it listens with a real backlog, where
//! the emulator's own network takes one connection at a time.
//!
//! passt gets one end of a pair of sockets, the emulator the other. It ends when its peer closes,
//! so it outlives neither the emulator nor, since that dies with this process, us: [`Passt`] waits
//! for its end, so that the next run finds the ports free. It runs as
//! nobody where we are root, and needs no route, no address and no name server of this machine: the
//! guest is told those of the emulator's own network.

use crate::host::child;
use crate::machine::emulator::Forward;
use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt, FdMapping};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

/// What leads published ports to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Network {
    /// passt; where it is missing, the emulator
    Passt,
    /// The emulator's own network: slow for many clients at once
    Emulator,
}

/// The program we run, and Debian's package of it.
pub const PROGRAM: &str = "passt";
/// Number of its end of the pair in its process.
const SOCKET: i32 = 3;
/// As the emulator's user network has it (its documentation, "Using the user mode network stack").
const GUEST: [&str; 12] = [
    "--address",
    "10.0.2.15",
    "--netmask",
    "24",
    "--gateway",
    "10.0.2.2",
    "--dns",
    "10.0.2.3",
    "--dns-forward",
    "10.0.2.3",
    "--mac-addr",
    "52:55:0a:00:02:02",
];
/// The network card's.
const PACKET_BYTES: &str = "1500";

/// Room for frames to the guest while nobody takes them: many times what eight busy connections
/// have on the way.
const ROOM_BYTES: usize = 4 << 20;

/// How long its end is waited for.
const END_MAX: Duration = Duration::from_secs(5);

/// A passt that serves. Dropped after the emulator's end, it waits for passt's.
pub struct Passt {
    socket: UnixStream,
}

impl Drop for Passt {
    fn drop(&mut self) {
        // It ends once it can read no more, and what it closes then can be read here. The emulator
        // made the socket one that does not wait.
        let end = self.socket.shutdown(Shutdown::Write).and_then(|()| {
            self.socket.set_nonblocking(false)?;
            self.socket.set_read_timeout(Some(END_MAX))?;
            let mut frames = [0; 4096];
            while self.socket.read(&mut frames)? > 0 {}
            Ok(())
        });
        // Frames that it did not read any more reset the connection: it is gone, too.
        if end.is_err_and(|problem| problem.kind() == std::io::ErrorKind::WouldBlock) {
            eprintln!("pelago: {PROGRAM} did not end within {END_MAX:?}; its ports may be taken for a while");
        }
    }
}

/// Starts passt with these ports. Gives it and the emulator's end of the pair.
pub fn connect(forwards: &[Forward]) -> Result<(Passt, OwnedFd)> {
    if crate::host::path::find(PROGRAM).is_none() {
        bail!("{PROGRAM} is missing; install it, for instance: apt-get install passt");
    }
    let (ours, its) = UnixStream::pair().context("cannot make a pair of sockets")?;
    // It drops what it cannot pass on at once, a SYN too, which it never repeats. The machine may
    // allow less.
    set_socket_send_buffer_size(&its, ROOM_BYTES).context("cannot set the buffer of a socket")?;
    let mut command = Command::new(PROGRAM);
    command.args(arguments(forwards));
    command
        .fd_mappings(vec![FdMapping { parent_fd: its.into(), child_fd: SOCKET }])
        .context("cannot pass a socket on")?;
    // It goes into the background once it serves.
    let output = child::output(&mut command, child::SHORT)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{PROGRAM} did not start ({}): {}", output.status, reason(&words));
    }
    let socket = ours.try_clone().context("cannot share a socket")?;
    Ok((Passt { socket }, ours.into()))
}

fn arguments(forwards: &[Forward]) -> Vec<String> {
    let mut words = vec!["--quiet".to_owned(), "--fd".into(), SOCKET.to_string(), "--ipv4-only".into()];
    // An interface is always there; its addresses are not used.
    words.extend(["--interface", "lo", "--mtu", PACKET_BYTES].map(str::to_owned));
    words.extend(GUEST.map(str::to_owned));
    for Forward { address, host, guest, protocol } in forwards {
        words.extend([format!("--{}-ports", protocol.name()), format!("{address}/{host}:{guest}")]);
    }
    words
}

/// What it says besides that nobody keeps a log.
fn reason(words: &str) -> &str {
    let is_told = |line: &&str| !line.is_empty() && !line.starts_with("Failed to send ");
    words.lines().rev().map(str::trim).find(is_told).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// One that takes its time, and has sent frames that nobody read. The pair does not wait, as
    /// the emulator leaves it.
    #[test]
    fn its_end_is_waited_for() {
        let (ours, mut its) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = has_ended.clone();
        let passt = std::thread::spawn(move || {
            its.write_all(&[7; 10_000]).unwrap();
            assert_eq!(its.read(&mut [0]).unwrap(), 0, "it can read no more");
            std::thread::sleep(Duration::from_millis(200));
            ends.store(true, Ordering::SeqCst);
        });
        drop(Passt { socket: ours });
        assert!(has_ended.load(Ordering::SeqCst), "its ports may be taken still");
        passt.join().unwrap();
    }

    #[test]
    fn ports_are_told_with_their_address() {
        let words = arguments(&["8080:80".parse().unwrap(), "0.0.0.0:53:5353/udp".parse().unwrap()]).join(" ");
        assert!(words.ends_with("--tcp-ports 127.0.0.1/8080:80 --udp-ports 0.0.0.0/53:5353"), "{words}");
    }

    #[test]
    fn the_last_of_its_own_words_is_the_reason() {
        let words =
            "Failed to send 3 bytes to syslog\nDon't run as root\nport taken\nFailed to send 9 bytes to syslog\n";
        assert_eq!(reason(words), "port taken");
        assert_eq!(reason(""), "without a word");
    }
}
