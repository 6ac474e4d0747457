//! Vector registers: each context finds its own again, and never those of another.

use super::World;
use super::time::context;
use crate::hardware;
use crate::objects::context::{Options, State};
use crate::objects::mapping::PageRun;
use crate::objects::{Context, Domain, Ptr, Schedule};
use abi::layout;

impl World {
    /// A running context of lower priority than the monitor's that has vector registers.
    fn with_vectors(&mut self, domain: Ptr<Domain>) -> Ptr<Context> {
        let (kernel, ram) = (&mut *self.kernel, self.ram);
        let place = PageRun { start: layout::REGIONS, pages: 1 };
        let options = Options { has_vectors: true, is_linux: false, priority_max: 7 };
        let context = Ptr::<Context>::create(kernel, ram, domain, place, options).unwrap();
        let schedule = kernel.create(ram, |header| Schedule::new(header, context, 5, 1_000_000)).unwrap();
        context.schedule.set(Some(schedule));
        kernel.start(context, 0x1000, 0x2000, [0; 2]);
        context
    }
}

#[test]
fn a_context_finds_its_vector_registers_as_it_left_them() {
    let mut world = World::new(512);
    let domain = world.monitor();
    let (first, second) = (context(domain), world.with_vectors(domain));
    // It has none.
    let plain = world.thread(domain, 1, 6);
    let kernel = &mut *world.kernel;
    let mut next_is = |from: Ptr<Context>, to: Ptr<Context>| {
        kernel.block(from, State::Waiting);
        if to.state() != State::Runnable {
            kernel.unblock(to);
        }
        kernel.decide();
        assert!(kernel.scheduler.current() == Some(to));
        hardware::vector()
    };
    next_is(plain, first);
    hardware::set_vector(1);
    assert_eq!(next_is(first, plain), None, "a touch is an exception");
    assert_eq!(next_is(plain, second), Some(0), "it begins with its own");
    hardware::set_vector(2);
    assert_eq!(next_is(second, first), Some(1));
    assert_eq!(next_is(first, second), Some(2));
    assert_eq!(next_is(second, plain), None);
    assert_eq!(next_is(plain, second), Some(2));
}
