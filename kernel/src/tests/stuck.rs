//! A core that stops with a shared object's lock: calls and accesses of others that need it are
//! made again and again, and change nothing until it lets go.

use super::shared::{Block, Core, READ_WRITE, pair};
use super::shared_ranges::{GIB, PAGE, SPACE, load, mapped_range};
use crate::arch::context::Event;
use crate::arch::paging::view;
use crate::calls;
use crate::objects::Schedule;
use crate::shared::{SharedObject, shared};
use abi::layout::lock;
use abi::{Call, Handle};

const AFTER: u64 = 0x1002;

/// One step of a call; tells whether it is to be made again, as it was made.
fn is_parked(core: &mut Core, call: Call, words: [u64; 6]) -> bool {
    core.actor.context.with_registers(|r| {
        r.rip = AFTER;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
    });
    calls::enter(&mut core.world.kernel, core.actor.context, call);
    core.actor.context.with_registers(|r| r.rip == AFTER - 2 && [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] == words)
}

fn object(core: &Core, handle: u64) -> SharedObject {
    shared(core.actor.domain.share().get(Handle(handle)).unwrap().object).unwrap()
}

#[test]
fn calls_and_accesses_leave_the_kernel_while_a_lock_is_stuck() {
    for kind in [lock::SPIN, lock::READ_WRITE, lock::MCS, lock::SCALABLE_READ_WRITE] {
        let block = Block::new(2);
        let (mut home, mut other, [share, imported]) = pair(&block, 64, kind);
        block.be(0);
        let [[range, _], [segment, id]] = mapped_range(&mut home, share, 4, 0);
        home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
        load(&mut home);
        let of_range = [
            (Call::RangeMap, [range, 8 * PAGE, segment, 0, 4, READ_WRITE]),
            (Call::RangeProtect, [range, 0, 4, 1, 0, 0]),
            (Call::RangeFill, [SPACE, GIB, 4, 0, 0, 0]),
            (Call::RangeUnmap, [range, 0, 4, 0, 0, 0]),
        ];
        let of_share = [
            (Call::ShareSegment, [share, 1, 0, 0, 0, 0]),
            (Call::ShareCopy, [share, segment, 0, 0, 0, 0]),
            (Call::ShareRange, [share, 512, kind, 0, 0, 0]),
            (Call::ShareAlloc, [share, 0, 0, kind, 0, 0]),
            (Call::ShareRemove, [share, id, 0, 0, 0, 0]),
        ];
        for (handle, calls) in [(range, &of_range[..]), (share, &of_share[..])] {
            let held = object(&home, handle).hold(1);
            for (call, words) in calls {
                assert!(is_parked(&mut home, *call, *words), "{call:?} waits");
            }
            if handle == range {
                let context = home.actor.context;
                let time = |header| Schedule::new(header, context, 7, 1_000_000);
                context.schedule.set(Some(home.world.kernel.create(home.world.ram, time).unwrap()));
                home.world.kernel.unblock(context);
                home.world.kernel.decide();
                home.world.kernel.step(Event::Exception { vector: 14, error: 6, address: GIB });
                assert!(home.actor.domain.is_alive(), "it tries again");
                assert!(view(home.actor.domain.range().root(), GIB).is_none());
            }
            drop(held);
            for (call, words) in calls {
                home.run(*call, words).unwrap_or_else(|error| panic!("{call:?}: {error:?}"));
            }
        }
        block.be(1);
        other.drop(imported);
        other.end();
        block.be(0);
        home.end();
    }
}
