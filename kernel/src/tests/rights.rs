//! Who may only end the machine can do nothing else with the core.

use super::World;
use crate::arch::context::Event;
use crate::objects::Pcore;
use crate::objects::share::Capability;
use abi::{Call, Error, Handle, Rights};

const SLOT: Handle = Handle(20);

/// What a call on a Pcore says to a holder of `rights`.
fn asked(rights: Rights, call: Call) -> u64 {
    let mut world = World::new(1200);
    let domain = world.monitor();
    let (pcore, _) = domain.share().find::<Pcore>(Handle::PCORE, Rights(0)).unwrap();
    world.kernel.retain(pcore);
    domain.insert(SLOT.0 as usize, Capability { object: pcore.any(), badge: 0, rights });
    world.kernel.decide();
    let caller = world.kernel.scheduler.current().unwrap();
    caller.with_registers(|r| {
        (r.rax, r.rdi) = (call.number(), SLOT.0);
        (r.rsi, r.rdx, r.r10) = (Handle::ROOT_RAM.0, 0, 0);
    });
    world.kernel.step(Event::Syscall);
    caller.with_registers(|r| r.rax)
}

#[test]
fn the_right_to_end_the_machine_is_no_other_and_no_other_is_it() {
    let refused = (Error::NoRights as u64).wrapping_neg();
    let calls = [
        Call::PcoreAlloc,
        Call::PcoreRun,
        Call::PcoreHalt,
        Call::PcoreWatch,
        Call::PcoreUse,
        Call::TraceRead,
        Call::SegmentImport,
        Call::WakeSlotAlloc,
        Call::WakeSlotImport,
        Call::WakeSlotFree,
        Call::DeviceAlloc,
    ];
    for call in calls {
        assert_eq!(asked(Rights::POWER, call), refused, "{call:?}");
    }
    let all_but_power = Rights(Rights::ALL.0 & !Rights::POWER.0);
    assert_eq!(asked(all_but_power, Call::PowerOff), refused);
}
