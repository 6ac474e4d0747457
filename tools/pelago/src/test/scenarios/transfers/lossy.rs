//! A network of a test's own that loses frames, as a real one does: between the emulator's card and
//! a tap, behind which this machine's own TCP is the peer, frames are lost.
//!
//! passt has no place here: it takes its way to the guest for one that loses nothing.

use super::capture;
use crate::host::namespace::{COMMAND_LINE, Namespace, TAP};
use crate::machine::emulator::Machine;
use crate::test::scenarios::random::Random;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Of so many frames one is lost, in each direction.
const ONE_OF: usize = 100;

/// What is lost.
pub enum Loss {
    /// Frames of either direction, by chance from this seed.
    ByChance(u64),
    /// The first frame of the guest with bytes for a program, and no other.
    FirstData,
}

/// Tells of each frame, with whether it is the guest's, whether it is lost.
type Judge = Box<dyn FnMut(&[u8], bool) -> bool>;

impl Loss {
    fn judge(self) -> Judge {
        match self {
            Loss::ByChance(seed) => {
                let mut random = Random(seed);
                Box::new(move |_, _| random.below(ONE_OF) == 0)
            }
            Loss::FirstData => {
                let mut is_over = false;
                Box::new(move |frame, is_guest| {
                    let is_lost = !is_over && is_guest && capture::has_data(frame);
                    is_over |= is_lost;
                    is_lost
                })
            }
        }
    }
}
/// Frames of one direction in one go.
const BURST: usize = 64;
const FRAME_BYTES_MAX: usize = 2048;
/// Until it looks whether it shall end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Carries frames, and loses some, until it is dropped.
pub struct Lossy {
    is_over: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl Lossy {
    /// Leads the machine's card through a tap of `namespace`.
    pub fn connect(machine: &mut Machine, namespace: &Namespace, loss: Loss) -> Result<Lossy> {
        let socket = UdpSocket::bind("127.0.0.1:0").context("no free port")?;
        let emulators = UdpSocket::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port();
        socket.connect(("127.0.0.1", emulators))?;
        socket.set_nonblocking(true)?;
        machine.frames = Some((emulators, socket.local_addr()?.port()));
        machine.command_line.push(COMMAND_LINE.to_owned());
        // A thread stays in the namespace that it entered, so this one must not.
        let open = || -> Result<SyncDevice> {
            namespace.enter()?;
            let device = DeviceBuilder::new().name(TAP).layer(Layer::L2).inherit_enable_state().build_sync();
            let device = device.context("the tap cannot be opened")?;
            device.set_nonblocking(true)?;
            Ok(device)
        };
        let opened = std::thread::scope(|scope| scope.spawn(open).join());
        let tap = opened.unwrap_or_else(|_| anyhow::bail!("the tap's opener failed"))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let carrier = std::thread::spawn(move || carry(&socket, &tap, &over, loss));
        Ok(Lossy { is_over, carrier: Some(carrier) })
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It has failed, or ends within a look.
        let _ = self.carrier.take().map(JoinHandle::join);
    }
}

fn carry(socket: &UdpSocket, tap: &SyncDevice, is_over: &AtomicBool, loss: Loss) {
    let mut is_lost = loss.judge();
    let mut bytes = [0; FRAME_BYTES_MAX];
    let (mut carried, mut lost) = (0, 0);
    let mut pass = |frame: &[u8], is_guest: bool| {
        let is_lost = is_lost(frame, is_guest);
        (carried, lost) = (carried + 1, lost + usize::from(is_lost));
        !is_lost
    };
    while !is_over.load(Ordering::Relaxed) {
        let mut both = [PollFd::new(socket, PollFlags::IN), PollFd::new(tap, PollFlags::IN)];
        match poll(&mut both, Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(problem) => return println!("     no frames are carried any more: {problem}"),
        }
        // A frame that the other side has no room for is one more that is lost.
        for _ in 0..BURST {
            let Ok(count) = socket.recv(&mut bytes) else { break };
            let _ = pass(&bytes[..count], true).then(|| tap.send(&bytes[..count]));
        }
        for _ in 0..BURST {
            let Ok(count) = tap.recv(&mut bytes) else { break };
            let _ = pass(&bytes[..count], false).then(|| socket.send(&bytes[..count]));
        }
    }
    println!("     {carried} frames carried both ways, {lost} of them lost");
}
