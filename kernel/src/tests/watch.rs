//! A hang is told from all that looks like one.

use super::World;
use crate::hardware::set_clock;
use crate::objects::notification::Notification;
use crate::objects::share::Capability;
use crate::objects::{Context, Ptr};
use abi::Rights;

const LIMIT_NS: u64 = 80_000_000;
/// More looks than a hang survives.
const LOOKS: u64 = 20;
const BADGE: u64 = 2;

/// What happens between two looks.
#[derive(Clone, Copy)]
struct Between {
    cpu_percent: u64,
    new_pages: u64,
    late_ns: u64,
}

/// How many looks it takes until the stall is reported; `None`: it is not.
fn looks_until_reported(between: Between) -> Option<u64> {
    let mut world = World::new(512);
    let (domain, teller) = (world.monitor(), world.monitor());
    let context_of = |slot: &Ptr<crate::objects::Domain>| -> Ptr<Context> {
        slot.share().find::<Context>(abi::Handle(4), Rights(0)).unwrap().0
    };
    let (context, told) = (context_of(&domain), context_of(&teller));
    let kernel = &mut *world.kernel;
    set_clock(0);
    let bell = Capability { object: told.any(), badge: BADGE, rights: Rights::ALL };
    Notification::decode(bell).unwrap();
    kernel.keep(&context.watch_target, Some(bell), None);
    context.watch_limit_ns.set(LIMIT_NS);
    kernel.signal(context, 1);
    (1..=LOOKS).find(|_| {
        let step_ns = context.watch_ns.get() - crate::hardware::now_ns();
        set_clock(context.watch_ns.get() + between.late_ns);
        domain.cpu_ns.set(domain.cpu_ns.get() + step_ns * between.cpu_percent / 100);
        domain.soft_faults.set(domain.soft_faults.get() + between.new_pages);
        kernel.alarm_rang();
        told.pending.get() == BADGE
    })
}

#[test]
fn what_goes_in_circles_is_reported_and_nothing_else() {
    let hang = Between { cpu_percent: 100, new_pages: 0, late_ns: 0 };
    assert_eq!(looks_until_reported(hang), Some(8));
    assert_eq!(looks_until_reported(Between { cpu_percent: 30, ..hang }), Some(8));
    // It had no time, or too little to get anywhere.
    assert_eq!(looks_until_reported(Between { cpu_percent: 0, ..hang }), None);
    assert_eq!(looks_until_reported(Between { cpu_percent: 10, ..hang }), None);
    // It gets on.
    assert_eq!(looks_until_reported(Between { new_pages: 1, ..hang }), None);
    // The core did not run.
    assert_eq!(looks_until_reported(Between { late_ns: LIMIT_NS, ..hang }), None);
}
