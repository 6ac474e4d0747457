//! Devices: whom their interrupts reach, and what one may still do when nobody has it any more.

use super::time::{context, refusal};
use super::{MACHINE, World};
use crate::arch::context::Event;
use crate::boot::info::CoreInfo;
use crate::devices::{DeviceInfo, Msix};
use crate::hardware::{self, Raiser};
use crate::memory::PhysAddr;
use crate::objects::device::PORTS_HWID;
use crate::objects::domain::Death;
use crate::objects::share::Capability;
use crate::objects::{Context, Ptr};
use abi::layout::segment as kinds;
use abi::{Call, DeathCause, Error, Handle, Rights};

const HWID: u32 = 8;

static WITH_A_CARD: CoreInfo =
    CoreInfo { devices: &[DeviceInfo { hwid: HWID, vendor: 0x1af4, msix: MSIX, ..DeviceInfo::NONE }], ..MACHINE };
const MSIX: Option<Msix> = Some(Msix { capability: 0x40, entries: 20, table: PhysAddr(0) });
/// Most interrupts of a device that are routed.
const ROUTES: u64 = 16;
/// The serial port's line and first port.
const SERIAL: (u32, u16) = (4, 0x3f8);
/// Where the driver has itself as the target of interrupts, with one bit each.
const TARGETS: [(u64, u64); 2] = [(20, 1 << 3), (21, 1 << 5)];

/// Its driver may have left it with addresses of memory that will be somebody else's.
#[test]
fn a_device_that_nobody_has_reaches_no_memory() {
    for gone in [Call::CapDrop, Call::DomainExit] {
        let mut world = World::new(512);
        world.monitor();
        world.kernel.info = Some(&WITH_A_CARD);
        world.kernel.decide();
        let claim = [Handle::PCORE.0, Handle::SELF_RAM.0, HWID.into(), 0, 0, 0];
        let (error, card) = world.runner_calls(Call::DeviceAlloc, claim);
        assert_eq!(error, 0);
        hardware::take_bus_masters();
        let (refused, _) = world.runner_calls(Call::DeviceMaster, [card, 2, 0, 0, 0, 0]);
        assert_eq!(
            (Error::from_code(refused.wrapping_neg()), hardware::take_bus_masters()),
            (Some(Error::BadArgument), vec![])
        );
        assert_eq!(world.runner_calls(Call::DeviceMaster, [card, 1, 0, 0, 0, 0]).0, 0);
        assert_eq!(hardware::take_bus_masters(), [(HWID, true)]);
        assert_ne!(world.runner_calls(Call::DeviceAlloc, claim).0, 0, "it is taken");
        world.runner_calls(gone, [card, 0, 0, 0, 0, 0]);
        assert_eq!(hardware::take_bus_masters(), [(HWID, false)], "{gone:?}");
        if gone == Call::CapDrop {
            assert_eq!(world.runner_calls(Call::DeviceAlloc, claim).0, 0, "it is free");
        }
        hardware::free_device(0);
    }
}

/// All that a driver held goes in several steps: its card stops before any memory is free.
#[test]
fn a_device_stops_before_the_memory_of_its_driver_is_free() {
    let mut world = World::new(2000);
    let domain = world.monitor();
    world.kernel.info = Some(&WITH_A_CARD);
    world.kernel.decide();
    let claim = [Handle::PCORE.0, Handle::SELF_RAM.0, HWID.into(), 0, 0, 0];
    let (error, card) = world.runner_calls(Call::DeviceAlloc, claim);
    assert_eq!((error, world.runner_calls(Call::DeviceMaster, [card, 1, 0, 0, 0, 0]).0), (0, 0));
    for _ in 0..300 {
        assert_eq!(world.runner_calls(Call::SegmentAlloc, [Handle::SELF_RAM.0, 2, kinds::EAGER, 0, 0, 0]).0, 0);
    }
    hardware::take_bus_masters();
    let free = world.kernel.frames.free();
    world.kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
    let mut steps = 0;
    while hardware::take_bus_masters().is_empty() {
        // Pages of its contexts and capabilities are the kernel's own.
        assert!(world.kernel.frames.free() <= free + 10, "memory is free, and the card runs");
        world.kernel.drain_dead();
        steps += 1;
    }
    assert!(steps > 2 && domain.is_ending());
    world.kernel.drain_all();
    assert!(world.kernel.frames.free() > free + 600);
    hardware::free_device(0);
}

/// A machine with a card, and a driver that runs, with itself as two targets.
fn driver() -> (World, Ptr<Context>) {
    let mut world = World::new(512);
    let domain = world.monitor();
    let context = context(domain);
    world.kernel.info = Some(&WITH_A_CARD);
    for (slot, badge) in TARGETS {
        world.kernel.retain(context);
        domain.ensure_slot(&mut world.kernel, slot as usize).unwrap();
        domain.insert(slot as usize, Capability { object: context.any(), badge, rights: Rights::ALL });
    }
    world.kernel.decide();
    (world, context)
}

impl World {
    fn claim(&mut self, hwid: u64) -> u64 {
        let (error, device) =
            self.runner_calls(Call::DeviceAlloc, [Handle::PCORE.0, Handle::SELF_RAM.0, hwid, 0, 0, 0]);
        assert_eq!(error, 0);
        device
    }

    fn route(&mut self, device: u64, entry: u64, target: usize) -> u64 {
        self.runner_calls(Call::DeviceInterrupt, [device, entry, TARGETS[target].0, 0, 0, 0]).0
    }

    /// The hardware raises an interrupt; the bits that `context` gets by that.
    fn raise(&mut self, raiser: Raiser, context: Ptr<Context>) -> u64 {
        if let Some(vector) = hardware::raised_by(raiser) {
            self.kernel.step(Event::Interrupt { vector });
        }
        context.pending.replace(0)
    }
}

#[test]
fn an_interrupt_reaches_whom_the_driver_named_until_its_device_is_quiet_or_gone() {
    let (mut world, context) = driver();
    let card = world.claim(HWID.into());
    let [first, second] = [0, 19].map(|entry| Raiser::Message(HWID, entry));
    assert_eq!([world.route(card, 0, 0), world.route(card, 19, 1)], [0; 2]);
    let bits = |world: &mut World| [first, second].map(|raiser| world.raise(raiser, context));
    assert_eq!(bits(&mut world), [TARGETS[0].1, TARGETS[1].1]);
    // Aimed again it has the vector that it had.
    assert_eq!(world.route(card, 0, 1), 0);
    assert_eq!((bits(&mut world), hardware::vectors_taken()), ([TARGETS[1].1; 2], 2));
    assert_eq!(world.route(card, 0, 0), 0);
    // One that the device has not takes no vector along.
    for entry in [20, 0xffff, 1 << 16, u64::MAX] {
        assert_eq!(world.route(card, entry, 0), refusal(Error::NotFound));
    }
    assert_eq!(hardware::vectors_taken(), 2);
    for (on, heard) in [(0, [0; 2]), (1, [TARGETS[0].1, TARGETS[1].1])] {
        assert_eq!(world.runner_calls(Call::DeviceMaster, [card, on, 0, 0, 0, 0]).0, 0);
        assert_eq!(bits(&mut world), heard);
    }
    let vector = hardware::raised_by(first).unwrap();
    assert_eq!(world.runner_calls(Call::CapDrop, [card, 0, 0, 0, 0, 0]).0, 0);
    assert_eq!((bits(&mut world), hardware::vectors_taken()), ([0; 2], 0));
    // One that was on its way.
    world.kernel.step(Event::Interrupt { vector });
    assert_eq!(context.pending.get(), 0, "nobody is told");
    let again = world.claim(HWID.into());
    assert_eq!(world.route(again, 5, 1), 0);
    assert_eq!(world.raise(Raiser::Message(HWID, 5), context), TARGETS[1].1);
}

#[test]
fn a_device_of_ports_has_one_interrupt_its_line() {
    let (mut world, context) = driver();
    let serial = world.claim(PORTS_HWID);
    let line = Raiser::Line(SERIAL.0);
    assert_eq!(world.route(serial, 1, 0), refusal(Error::NotFound));
    assert_eq!((hardware::vectors_taken(), world.raise(line, context)), (0, 0));
    assert_eq!(world.route(serial, 0, 0), 0);
    assert_eq!(world.raise(line, context), TARGETS[0].1);
    for on in [0, 1] {
        let refused = world.runner_calls(Call::DeviceMaster, [serial, on, 0, 0, 0, 0]).0;
        assert_eq!(refused, refusal(Error::NotFound), "it reads no memory");
    }
    world.runner_calls(Call::CapDrop, [serial, 0, 0, 0, 0, 0]);
    assert_eq!((hardware::vectors_taken(), hardware::raised_by(line)), (0, None));
}

#[test]
fn a_device_whose_routes_are_all_aimed_gets_no_more() {
    let (mut world, context) = driver();
    let card = world.claim(HWID.into());
    for entry in 0..ROUTES {
        assert_eq!(world.route(card, entry, 0), 0);
    }
    assert_eq!(world.route(card, ROUTES, 0), refusal(Error::Busy));
    assert_eq!(world.route(card, ROUTES - 1, 1), 0, "one of them is aimed again");
    assert_eq!(world.raise(Raiser::Message(HWID, ROUTES as u16 - 1), context), TARGETS[1].1);
}
