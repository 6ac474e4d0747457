//! What a device may still do when nobody has it any more.

use super::{MACHINE, World};
use crate::boot::info::CoreInfo;
use crate::devices::DeviceInfo;
use crate::hardware;
use crate::objects::domain::Death;
use abi::layout::segment as kinds;
use abi::{Call, DeathCause, Error, Handle};

const HWID: u32 = 8;

static WITH_A_CARD: CoreInfo =
    CoreInfo { devices: &[DeviceInfo { hwid: HWID, vendor: 0x1af4, ..DeviceInfo::NONE }], ..MACHINE };

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
