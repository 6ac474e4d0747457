//! Opens the device through the kernel: windows, interrupt, memory access.
#![allow(unsafe_code)]

use abi::{Handle, Rights};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use runtime::{Bulk, Turn, Turner};

use crate::Transport;
use crate::handler::Handler;
use crate::mmio::Mmio;
use crate::pci::{self, BarRegion, Pci};
use crate::registers::Registers;
use crate::transport::DeviceOwner;

/// A claimed device.
#[derive(Clone, Copy)]
pub struct Claim {
    handle: Handle,
    /// Its interrupt is a line, which the device holds up until it is quieted.
    line: bool,
}

/// Which messages a device sends: of its queues, of changes of its configuration, and of a queue
/// that has a handler of its own.
const QUEUES: u64 = 0;
const CONFIGURATION: u64 = 1;
/// See [`QUEUES`].
pub const APART: u16 = 2;
/// Badge bits of a handler's own context.
const INTERRUPTED: u64 = 1 << 0;
const ASKED: u64 = 1 << 1;
/// A handler's time, at most so much in a row: a turn takes some microseconds.
const SLICE_US: u64 = 1_000;

/// A device has this long to become quiet after a reset, in nanoseconds.
pub const RESET_NS: u64 = 100_000_000;
/// A driver that serves for so long leaves its successor a device to go on with, in nanoseconds.
pub const SERVED_NS: u64 = 200_000_000;

/// Opens a device that we hold, and has its interrupts come: see [`open`] and [`interrupt`]. The
/// error is for people.
pub fn begin(
    device: Handle,
    kind: u32,
    queues: u64,
    configuration: u64,
) -> Result<(Box<dyn Transport>, Claim), String> {
    let (transport, claim) = open(device, kind).map_err(|reason| format!("the device cannot be used: {reason}"))?;
    interrupt(claim, queues, configuration).map_err(|error| format!("no interrupt for the device: {error:?}"))?;
    Ok((transport, claim))
}

/// Serves the interrupts of the queues for ever: those of a line are answered by `acknowledge`, and
/// after each `wake` is called.
pub async fn serve_interrupts(claim: Claim, badge: u64, mut acknowledge: impl FnMut(), mut wake: impl FnMut()) {
    loop {
        runtime::notified(badge).await;
        if claim.line {
            acknowledge();
        }
        wake();
    }
}

/// Maps the registers of a device that we hold, virtio by PCI or by MMIO. `kind` is its number in
/// section 5 of virtio 1.2. It interrupts nobody yet. The error is for people.
pub fn open(device: Handle, kind: u32) -> Result<(Box<dyn Transport>, Claim), &'static str> {
    let is_pci = sys::device_conf_read(device, 0, 2).is_ok();
    let transport = if is_pci { open_pci(device) } else { open_mmio(device, kind) }?;
    Ok((transport, Claim { handle: device, line: !is_pci }))
}

/// The owner of a claimed device, for one start.
pub struct Card {
    claim: Claim,
    deadline_ns: u64,
}

impl Card {
    /// The device has so long to come out of a reset.
    pub fn new(claim: Claim, reset_ns: u64) -> Card {
        Card { claim, deadline_ns: runtime::now_ns().saturating_add(reset_ns) }
    }
}

impl DeviceOwner for Card {
    fn reaches_memory(&mut self) -> bool {
        // Bus mastering, in a PCI device's command register. virtio-mmio has no switch.
        const COMMAND: u64 = 4;
        const MASTER: u64 = 1 << 2;
        let Claim { handle, line } = self.claim;
        sys::device_conf_read(handle, COMMAND, 2).map_or(line, |command| command & MASTER != 0)
    }

    fn enable_bus_master(&mut self) -> bool {
        sys::device_master(self.claim.handle, true).is_ok()
    }

    fn has_timed_out(&mut self) -> bool {
        runtime::now_ns() > self.deadline_ns
    }
}

/// Has the device's interrupts come as these badge bits of this context. A line, or a device of one
/// message, tells all by the first.
pub fn interrupt(claim: Claim, queues: u64, configuration: u64) -> Result<(), abi::Error> {
    route(claim.handle, QUEUES, queues)?;
    match route(claim.handle, CONFIGURATION, configuration) {
        Err(abi::Error::NotFound) => Ok(()),
        done => done,
    }
}

/// Has message [`APART`] come as that badge bit of this context, until a handler takes it.
///
/// # Errors
/// `NotFound`: the device has no such message.
pub fn interrupt_apart(claim: Claim, badge: u64) -> Result<(), abi::Error> {
    route(claim.handle, APART.into(), badge)
}

/// A handler of a queue that runs on a context of its own, until this is dropped. May be stopped at
/// any store.
pub struct Running {
    turner: Turner<Notifying>,
    /// Notifies it.
    bell: Owned,
    /// By which it notifies its driver; dropped after it has ended.
    _told: Owned,
}

/// A capability that is dropped with this.
struct Owned(Handle);

impl Drop for Owned {
    fn drop(&mut self) {
        // It is there.
        let _ = sys::cap_drop(self.0);
    }
}

struct Notifying {
    handler: Handler<Bulk>,
    told: Handle,
}

impl Turn for Notifying {
    fn turn(&mut self) {
        if self.handler.turn() {
            // The driver's context is there as long as this one is.
            let _ = sys::notify(self.told);
        }
    }
}

impl Running {
    /// Starts a context, with time of that priority (at most the component's), for a handler over a
    /// device's own doorbell; message [`APART`] is its from then on. It notifies this context by
    /// `bit`.
    ///
    /// # Errors
    /// `BadArgument` if the doorbell is no register; else those of `ContextAlloc`,
    /// `ContextSchedule` and `DeviceInterrupt`.
    pub fn start(mut handler: Handler<Bulk>, claim: Claim, bit: u64, priority: u64) -> Result<Running, abi::Error> {
        let register = handler.sender.doorbell.register().ok_or(abi::Error::BadArgument)?;
        handler.sender.doorbell = Box::new(register);
        let told = Owned(sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, bit)?);
        // SAFETY: `Handler::turn` over mapped memory and a register neither allocates nor frees;
        // its queue's memory is nobody else's, and what it shares are atomic words. Its parts are
        // numbers and boxes that it does not change.
        let turner = unsafe { Turner::start(Notifying { handler, told: told.0 }, (priority, SLICE_US)) }?;
        let context = turner.context().ok_or(abi::Error::BadArgument)?;
        let bell = Owned(sys::cap_mint(context, Rights::NOTIFY, ASKED)?);
        route_to(claim.handle, APART.into(), context, INTERRUPTED)?;
        Ok(Running { turner, bell, _told: told })
    }

    /// There may be something to do for it.
    pub fn notify(&self) {
        // Its context is there.
        let _ = sys::notify(self.bell.0);
    }

    /// Its context.
    pub fn context(&self) -> Option<Handle> {
        self.turner.context()
    }
}

fn route(device: Handle, entry: u64, badge: u64) -> Result<(), abi::Error> {
    route_to(device, entry, Handle::SELF_CONTEXT, badge)
}

fn route_to(device: Handle, entry: u64, context: Handle, badge: u64) -> Result<(), abi::Error> {
    let notification = sys::cap_mint(context, Rights::NOTIFY, badge)?;
    let routed = sys::device_interrupt(device, entry, notification);
    sys::cap_drop(notification)?;
    routed
}

fn open_pci(device: Handle) -> Result<Box<dyn Transport>, &'static str> {
    let places = pci::find(|offset, width| sys::device_conf_read(device, offset, width).ok())
        .ok_or("it has no virtio 1 structures (QEMU: disable-legacy=on)")?;
    let mut windows = [None; 6];
    let mut map = |place: BarRegion| -> Result<Registers, &'static str> {
        let slot = windows.get_mut(usize::from(place.window)).ok_or("a structure lies in no window")?;
        let window = match *slot {
            Some(window) => window,
            None => *slot.insert(map_window(device, place.window.into())?),
        };
        Ok(window.part(place.offset.into(), place.bytes.into()))
    };
    let (common, notify, own) = (map(places.common)?, map(places.notify)?, map(places.device)?);
    Ok(Box::new(Pci::new(common, notify, places.notify_step, own)))
}

fn open_mmio(device: Handle, kind: u32) -> Result<Box<dyn Transport>, &'static str> {
    let registers = map_window(device, 0)?;
    match Mmio::new(registers, kind) {
        Ok(transport) => Ok(Box::new(transport)),
        Err(_) => Err("it is no such device of virtio-mmio version 2 (QEMU: -global virtio-mmio.force-legacy=false)"),
    }
}

fn map_window(device: Handle, window: u64) -> Result<Registers, &'static str> {
    let (segment, offset) =
        sys::device_window(device, Handle::SELF_RAM, window).map_err(|_| "a register window is missing")?;
    let (address, bytes, keeper) = runtime::map_segment(segment).map_err(|_| "no room to map registers")?;
    core::mem::forget(keeper);
    // SAFETY: just mapped, and never unmapped: the keeper is forgotten. The kernel maps a device's
    // window and nothing else.
    Ok(unsafe { Registers::new(address + offset, bytes.saturating_sub(offset)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::Cell;

    fn claim(line: bool) -> Claim {
        Claim { handle: Handle(40), line }
    }

    #[test]
    fn a_device_has_as_long_as_it_was_given() {
        // Each look at a test's clock takes a nanosecond.
        let mut card = Card::new(claim(false), 10);
        assert!((0..10).all(|_| !card.has_timed_out()));
        assert!((0..3).all(|_| card.has_timed_out()));
    }

    #[test]
    fn a_line_is_answered_before_who_waits_is_woken() {
        for line in [false, true] {
            let said = Rc::new(Cell::new((0, 0)));
            let (answers, wakes) = (said.clone(), said.clone());
            let acknowledge = move || answers.set((answers.get().0 + 1, answers.get().1));
            let wake = move || {
                let (answered, woken) = wakes.get();
                assert_eq!(answered, if line { woken + 1 } else { 0 });
                wakes.set((answered, woken + 1));
            };
            runtime::testing::run_and_end(async {
                runtime::spawn(serve_interrupts(claim(line), 4, acknowledge, wake));
                for count in 1..4 {
                    executor::post(4);
                    runtime::sleep(10).await;
                    assert_eq!(said.get().1, count);
                }
            });
        }
    }

    /// As on a host, where there is no kernel.
    #[test]
    fn of_what_the_kernel_refuses_nothing_is_believed() {
        let device = claim(false).handle;
        assert!(begin(device, 1, 1, 2).is_err() && open(device, 1).is_err());
        for line in [false, true] {
            let mut card = Card::new(claim(line), 0);
            assert!(interrupt(claim(line), 1, 2).is_err() && interrupt_apart(claim(line), 1).is_err());
            assert!(!card.enable_bus_master());
            // A device by MMIO has no register that tells it.
            assert_eq!(card.reaches_memory(), line);
        }
    }
}
