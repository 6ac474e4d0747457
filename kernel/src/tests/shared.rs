//! Shared shares and segments on several kernels: what is found from where, what a refusal leaves,
//! and that everything is back when the last core let go.

use super::revoke::{Actor, STEP_WORK_MAX};
use super::{Random, World};
use crate::arch::paging::{Flags, translate};
use crate::hardware;
use crate::memory::{PAGE_BYTES, phys_to_virt, set_test_ram};
use crate::objects::domain::Death;
use crate::objects::fault::Access;
use crate::objects::remote::SHARED_SLOT;
use crate::objects::{Pcore, Ptr};
use crate::shared::SharedShare;
use crate::shared::registry::{Machine, set_test_core};
use abi::layout::{HEAP, lock, protection};
use abi::{Call, DeathCause, Error, Handle, ObjectType, Rights};
use std::sync::Barrier;
use std::time::Duration;

/// A thread of a test that waits longer for another waits for nothing.
pub(super) const LIMIT: Duration = Duration::from_secs(100);
const PAGES: u64 = 600;
pub(super) const NONE: u64 = 0;
pub(super) const RAM: u64 = Handle::ROOT_RAM.0;
pub(super) const PCORE: u64 = Handle::PCORE.0;
pub(super) const ALL: u64 = Rights::ALL.0 as u64;
pub(super) const READ_WRITE: u64 = protection::READ | protection::WRITE;
/// A shared segment that is there whole from the start.
pub(super) const CONTIGUOUS: u64 = abi::layout::segment::CONTIGUOUS;

/// Memory of several cores.
pub(super) struct Block {
    memory: Vec<u128>,
    machine: &'static Machine,
    /// Of each core.
    pages: u64,
}

impl Block {
    pub(super) fn new(cores: u64) -> Block {
        Block::of(cores, PAGES)
    }

    pub(super) fn of(cores: u64, pages: u64) -> Block {
        let memory = vec![0u128; (cores * pages + 2) as usize * PAGE_BYTES / 16];
        Block { memory, machine: Machine::new(), pages }
    }

    /// This thread is that core from now on.
    pub(super) fn be(&self, core: usize) {
        let start = self.memory.as_ptr().cast::<u8>().cast_mut();
        set_test_ram(start.wrapping_add(start.align_offset(PAGE_BYTES)));
        set_test_core(self.machine, core);
    }

    pub(super) fn core(&self, core: usize) -> Core {
        self.be(core);
        let mut world = World::of_core(core, 1 + core as u64 * self.pages, self.pages);
        let actor = world.outsider();
        let pcore = world.kernel.create(world.ram, |header| Pcore::own(header, core)).unwrap();
        world.give(actor, PCORE as usize, pcore.any());
        world.kernel.release(pcore);
        let used = world.used();
        Core { world, actor, used }
    }
}

pub(super) struct Core {
    pub(super) world: World,
    pub(super) actor: Actor,
    used: u64,
}

impl Core {
    pub(super) fn run(&mut self, call: Call, words: &[u64]) -> Result<[u64; 3], Error> {
        self.world.run(self.actor, call, words)
    }

    pub(super) fn make(&mut self, call: Call, words: &[u64]) -> u64 {
        self.world.make(self.actor, call, words)
    }

    /// A pool with its first share.
    pub(super) fn pool(&mut self, pages: u64, kind: u64) -> u64 {
        self.make(Call::ShareAlloc, &[NONE, RAM, pages, kind, 0, 0])
    }

    /// What a handle of a share names.
    pub(super) fn named(&self, share: u64) -> Ptr<SharedShare> {
        self.actor.domain.share().get(Handle(share)).unwrap().object.cast().unwrap()
    }

    pub(super) fn drop(&mut self, handle: u64) {
        self.make(Call::CapDrop, &[handle]);
    }

    /// Handles the doorbell as the mailbox does, until nobody rings any more; counts the steps.
    pub(super) fn ring(&mut self) -> usize {
        let own = self.world.kernel.core();
        for step in 1.. {
            hardware::posted();
            hardware::take_work();
            self.world.kernel.on_shared_doorbell();
            let work = hardware::take_work();
            assert!(work <= STEP_WORK_MAX, "a step does {work} units of work");
            self.world.kernel.drain_all();
            if hardware::posted() != Some((own, SHARED_SLOT)) {
                return step;
            }
        }
        unreachable!()
    }

    /// The byte that a program would see at an address, if it may.
    pub(super) fn byte(&mut self, address: u64) -> Option<*mut u8> {
        let range = self.actor.domain.range();
        let frame = match translate(range.root(), address, Flags::WRITE) {
            Some(frame) => frame,
            None => range.resolve(&mut self.world.kernel, address, Access::Write).ok()?,
        };
        Some(phys_to_virt(frame))
    }

    /// Nothing is left of what the test made.
    pub(super) fn assert_back(&mut self) {
        self.ring();
        self.actor
            .domain
            .range()
            .unmap(
                &mut self.world.kernel,
                crate::objects::mapping::PageRun { start: HEAP, pages: 64 },
                &mut crate::steps::Budget::all(),
            )
            .unwrap();
        self.world.kernel.drain_all();
        assert_eq!(self.world.kernel.kernel_objects - 1, OWN_OBJECTS, "objects are left");
        // Slot pages and tables of the domain stay.
        assert!(self.world.used() <= self.used + 4, "{} pages, {} at the start", self.world.used(), self.used);
    }

    /// Nothing is left, and then the core ends.
    pub(super) fn close(mut self) {
        self.assert_back();
        self.end();
    }

    pub(super) fn end(mut self) {
        let (kernel, domain) = (&mut self.world.kernel, self.actor.domain);
        kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
        kernel.release(self.actor.context);
        kernel.release(domain);
        kernel.drain_all();
    }
}

/// Of a fresh core, besides the root Ram: domain, range, context, its control page's segment,
/// pcore.
const OWN_OBJECTS: u64 = 5;

/// Two cores, and a share of core 0 that both name: their handles of it.
pub(super) fn pair(block: &Block, pages: u64, kind: u64) -> (Core, Core, [u64; 2]) {
    let mut other = block.core(1);
    let mut home = block.core(0);
    let share = home.pool(pages, kind);
    let id = home.make(Call::SharePool, &[PCORE, share]);
    block.be(1);
    let imported = other.make(Call::ShareImport, &[PCORE, RAM, id]);
    (home, other, [share, imported])
}

pub(super) fn in_share(share: u64, id: u64) -> u64 {
    Handle::in_share(Handle(share), id).unwrap().0
}

#[test]
fn two_cores_see_the_same_bytes_through_a_share_and_not_without_it() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 64, lock::SPIN);
    block.be(0);
    let [handle, id, _] = home.run(Call::ShareSegment, &[share, 4, 7, 8]).unwrap();
    assert_eq!(handle, in_share(share, id));
    let private = home.make(Call::SegmentAlloc, &[RAM, 1, 0]);
    let private_id = home.run(Call::CapStat, &[private]).unwrap()[1];
    home.make(Call::RangeMap, &[Handle::SELF_RANGE.0, HEAP, handle, 0, 4, READ_WRITE]);
    let written = home.byte(HEAP + 0x2003).unwrap();
    // SAFETY: a page of the pool.
    unsafe { *written = 99 };
    assert_eq!(home.run(Call::ShareAdd, &[share, private, ALL]), Err(Error::WrongType), "private objects stay private");
    block.be(1);
    assert_eq!(
        other.run(Call::RangeMap, &[Handle::SELF_RANGE.0, HEAP, in_share(imported, private_id), 0, 1, READ_WRITE]),
        Err(Error::BadHandle)
    );
    other.make(Call::RangeMap, &[Handle::SELF_RANGE.0, HEAP, in_share(imported, id), 2, 2, READ_WRITE]);
    let seen = other.byte(HEAP + 3).unwrap();
    // SAFETY: as above; and the same page.
    unsafe { assert_eq!(*seen, 99) };
    assert_eq!(written, seen);
    assert_eq!(other.run(Call::ObjectName, &[in_share(imported, id)]).unwrap()[..2], [7, 8]);
    // Another share of the pool does not know it; and without the share's slot nobody does.
    let [_, second, _] = other.run(Call::ShareAlloc, &[imported, 0, 0, lock::MCS, 0, 0]).unwrap();
    let second_handle = other.make(Call::ShareAdd, &[NONE, in_share(imported, second), ALL]);
    assert_eq!(other.run(Call::SegmentStat, &[in_share(second_handle, id)]), Err(Error::BadHandle));
    other.drop(imported);
    assert_eq!(other.run(Call::SegmentStat, &[in_share(imported, id)]), Err(Error::BadHandle));
    block.be(0);
    assert_eq!(home.run(Call::SegmentStat, &[in_share(share, id)]).unwrap()[0], 4, "another core keeps it");
    home.drop(private);
    home.drop(share);
    block.be(1);
    other.drop(second_handle);
    other.close();
    block.be(0);
    home.close();
}

#[test]
fn metadata_of_another_core_is_reached_without_mapping_anything() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 64, lock::SPIN);
    block.be(0);
    let ids: Vec<u64> =
        (1..=8).map(|pages| home.run(Call::ShareSegment, &[share, pages, pages, 9]).unwrap()[1]).collect();
    block.be(1);
    let root = other.actor.domain.range().root();
    let mapped =
        || (0..64).filter(|page| translate(root, HEAP + page * PAGE_BYTES as u64, Flags::NONE).is_some()).count();
    let (used, objects) = (other.world.used(), other.world.kernel.kernel_objects);
    hardware::take_flushes();
    for (pages, id) in (1..).zip(&ids) {
        let named = in_share(imported, *id);
        assert_eq!(other.run(Call::ObjectName, &[named]).unwrap(), [pages, 9, 1]);
        assert_eq!(other.run(Call::SegmentStat, &[named]).unwrap()[0], pages);
    }
    assert_eq!(other.run(Call::ShareStat, &[imported]).unwrap()[0], 8);
    assert_eq!((other.world.used(), other.world.kernel.kernel_objects), (used, objects), "nothing was made for it");
    assert_eq!((hardware::take_flushes(), mapped()), (Vec::new(), 0), "and nothing mapped");
    other.drop(imported);
    other.end();
    block.be(0);
    home.drop(share);
    home.close();
}

#[test]
fn changes_take_the_lock_once_and_lookups_never() {
    let block = Block::new(2);
    for kind in [lock::SPIN, lock::READ_WRITE, lock::MCS, lock::SCALABLE_READ_WRITE] {
        let (mut home, mut other, [share, imported]) = pair(&block, 32, kind);
        block.be(0);
        let [_, inner, _] = home.run(Call::ShareAlloc, &[share, 0, 0, kind, 0, 0]).unwrap();
        let inner = home.make(Call::ShareAdd, &[NONE, in_share(share, inner), ALL]);
        let [segment, id, _] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
        let before = home.run(Call::ShareStat, &[share]).unwrap();
        assert_eq!(before, [2, 2, 0]);
        (0..10).for_each(|_| {
            home.make(Call::SegmentStat, &[segment]);
        });
        assert_eq!(home.run(Call::ShareStat, &[share]).unwrap(), before, "a lookup takes no lock");
        for turn in 1..=5 {
            home.make(Call::ShareAdd, &[inner, segment, ALL]);
            assert_eq!(home.run(Call::ShareAdd, &[inner, segment, ALL]), Err(Error::Busy));
            assert_eq!(home.run(Call::ObjectName, &[segment]).unwrap()[2], 2, "a name each");
            home.make(Call::ShareRemove, &[inner, id]);
            assert_eq!(home.run(Call::ShareStat, &[inner]).unwrap(), [0, 3 * turn, 0]);
        }
        assert_eq!(home.run(Call::ShareRemove, &[inner, id]), Err(Error::NotFound));
        block.be(1);
        // The last name goes with the entry, from another core; and its page comes back.
        let page = |core: &mut Core| core.run(Call::ShareSegment, &[imported, 1, 0, 0]).is_ok();
        while page(&mut other) {}
        other.make(Call::ShareRemove, &[imported, id]);
        assert!(page(&mut other) || page(&mut other));
        other.drop(imported);
        other.assert_back();
        block.be(0);
        home.drop(inner);
        home.drop(share);
        home.assert_back();
        other.end();
        block.be(0);
        home.end();
    }
}

#[test]
fn an_object_that_three_shares_know_is_freed_when_the_third_forgets_it() {
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(64, lock::SPIN);
    let shares: [u64; 3] = std::array::from_fn(|_| {
        let [inner, ..] = home.run(Call::ShareAlloc, &[share, 0, 0, lock::SPIN, 0, 0]).unwrap();
        home.make(Call::ShareAdd, &[NONE, inner, ALL])
    });
    let free = |core: &Core| core.named(share).stat().unwrap().2;
    let before = free(&home);
    let [segment, id, _] = home.run(Call::ShareSegment, &[shares[0], 8, 7, 8, CONTIGUOUS]).unwrap();
    let held = free(&home);
    assert!(held + 8 <= before, "its pages are the pool's");
    shares[1..].iter().for_each(|other| _ = home.make(Call::ShareAdd, &[*other, segment, ALL]));
    for (gone, left) in [(0, 2), (2, 1)] {
        home.make(Call::ShareRemove, &[shares[gone], id]);
        home.ring();
        assert_eq!(home.run(Call::ObjectName, &[in_share(shares[1], id)]).unwrap(), [7, 8, left]);
        assert_eq!(free(&home), held, "{left} references are left");
    }
    home.make(Call::ShareRemove, &[shares[1], id]);
    home.ring();
    assert_eq!(free(&home), before, "freed with the last reference");
    shares.into_iter().for_each(|inner| home.drop(inner));
    home.drop(share);
    home.close();
}

#[test]
fn the_name_an_object_was_given_is_told_and_a_wrong_id_is_refused() {
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(64, lock::SPIN);
    let made = [
        (home.run(Call::ShareAlloc, &[share, 0, 0, lock::SPIN, 3, 4]).unwrap(), [3, 4]),
        (home.run(Call::ShareRange, &[share, 512, lock::SPIN, 5, u64::MAX, 0]).unwrap(), [5, u64::MAX]),
        (home.run(Call::ShareSegment, &[share, 1, 0, 8]).unwrap(), [0, 8]),
    ];
    for ([handle, ..], name) in made {
        assert_eq!(home.run(Call::ObjectName, &[handle]).unwrap()[..2], name);
    }
    let last = made[2].0[1];
    home.make(Call::ShareRemove, &[share, last]);
    for id in [last, last + 1, 1] {
        assert_eq!(home.run(Call::ObjectName, &[in_share(share, id)]), Err(Error::BadHandle), "id {id:#x}");
    }
    assert_eq!(home.run(Call::ObjectName, &[share + 1]), Err(Error::BadHandle));
    assert_eq!(home.run(Call::ObjectName, &[RAM]), Err(Error::WrongType), "private objects have no names");
    home.drop(share);
    home.close();
}

#[test]
fn a_new_share_is_in_its_parent_and_its_memory_is_charged_to_the_account_named() {
    const POOL: u64 = 64;
    let block = Block::new(1);
    let mut home = block.core(0);
    let [account, other] = [(); 2].map(|()| home.make(Call::RamSplit, &[RAM, 2 * POOL]));
    let used = |core: &mut Core, ram: u64| core.run(Call::RamStat, &[ram]).unwrap()[1];
    let before = [account, other].map(|ram| used(&mut home, ram));
    let share = home.make(Call::ShareAlloc, &[NONE, account, POOL, lock::SPIN, 0, 0]);
    assert!(used(&mut home, account) >= before[0] + POOL, "the pool is its account's");
    assert_eq!(used(&mut home, other), before[1], "and no other's");
    assert_eq!(home.run(Call::ShareStat, &[share]).unwrap()[0], 0);
    let (charged, free) = (used(&mut home, account), home.named(share).stat().unwrap().2);
    let [inner, id, _] = home.run(Call::ShareAlloc, &[share, 0, 0, lock::SPIN, 0, 0]).unwrap();
    assert_eq!(inner, in_share(share, id), "known in its parent");
    assert_eq!(home.run(Call::ShareStat, &[share]).unwrap()[0], 1);
    assert_eq!(free - home.named(share).stat().unwrap().2, 1, "its page is of its parent's pool");
    assert_eq!(used(&mut home, account), charged);
    home.make(Call::ShareRemove, &[share, id]);
    home.drop(share);
    home.ring();
    assert_eq!(used(&mut home, account), before[0], "all is given back");
    [account, other].into_iter().for_each(|ram| home.drop(ram));
    home.close();
}

#[test]
fn a_share_keeps_the_pages_of_its_names_until_it_goes() {
    const NAMES: usize = 100;
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(200, lock::SPIN);
    let free = |core: &Core| core.named(share).stat().unwrap().2;
    let made: Vec<_> = (0..NAMES).map(|_| home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap()).collect();
    let without = free(&home);
    let [inner, inner_id, _] = home.run(Call::ShareAlloc, &[share, 0, 0, lock::SPIN, 0, 0]).unwrap();
    let inner = home.make(Call::ShareAdd, &[NONE, inner, ALL]);
    assert_eq!(without - free(&home), 1, "the share's own");
    for _ in 0..3 {
        for [segment, ..] in &made {
            home.make(Call::ShareAdd, &[inner, *segment, ALL]);
        }
        assert_eq!(without - free(&home), 3, "29 names in its own page, 63 in each other");
        assert_eq!(home.run(Call::ShareStat, &[inner]).unwrap()[0], NAMES as u64);
        // Not in the order in which they came.
        for half in [0, 1] {
            for [_, id, _] in made.iter().skip(half).step_by(2) {
                home.make(Call::ShareRemove, &[inner, *id]);
            }
        }
        assert_eq!(without - free(&home), 3);
    }
    home.drop(inner);
    home.make(Call::ShareRemove, &[share, inner_id]);
    assert_eq!(free(&home), without);
    home.drop(share);
    home.close();
}

#[test]
fn rights_of_a_name_hold_wherever_it_is_used() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 32, lock::SPIN);
    block.be(0);
    let [_, inner_id, _] = home.run(Call::ShareAlloc, &[share, 0, 0, lock::SPIN, 0, 0]).unwrap();
    let inner = home.make(Call::ShareAdd, &[NONE, in_share(share, inner_id), ALL]);
    let [segment, id, _] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
    home.make(Call::ShareAdd, &[inner, segment, Rights::READ.0.into()]);
    home.make(Call::ShareRemove, &[share, id]);
    block.be(1);
    let read_only =
        other.make(Call::ShareAdd, &[NONE, in_share(imported, inner_id), Rights::READ.union(Rights::GRANT).0.into()]);
    let map = |core: &mut Core, protection: u64| {
        core.run(Call::RangeMap, &[Handle::SELF_RANGE.0, HEAP, in_share(read_only, id), 0, 1, protection])
    };
    assert_eq!(map(&mut other, READ_WRITE), Err(Error::NoRights));
    assert!(map(&mut other, protection::READ).is_ok());
    assert_eq!(other.run(Call::ShareAdd, &[NONE, in_share(read_only, id), 0]), Err(Error::NoRights), "no GRANT");
    assert_eq!(other.run(Call::ShareRemove, &[read_only, id]), Err(Error::NoRights), "no WRITE on the share");
    assert_eq!(other.run(Call::ShareAdd, &[imported, read_only, ALL]), Err(Error::NoRights), "no more than one has");
    other.end();
    block.be(0);
    home.drop(share);
    home.drop(inner);
    home.close();
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let block = Block::new(1);
    let mut home = block.core(0);
    assert_eq!(home.run(Call::ShareAlloc, &[NONE, RAM, PAGES, 0, 0, 0]), Err(Error::NoMemory));
    assert_eq!(home.run(Call::ShareAlloc, &[NONE, RAM, 7, 0, 0, 0]), Err(Error::BadArgument));
    assert_eq!(home.run(Call::ShareAlloc, &[NONE, RAM, 8, 4, 0, 0]), Err(Error::BadArgument), "no such lock");
    let share = home.pool(8, lock::SPIN);
    let used = home.world.used();
    assert_eq!(home.run(Call::ShareSegment, &[share, 7, 0, 0, CONTIGUOUS]), Err(Error::NoMemory));
    let mut made = Vec::new();
    while let Ok([_, id, _]) = home.run(Call::ShareSegment, &[share, 1, 0, 0]) {
        made.push(id);
    }
    assert!(made.len() >= 2 && made.is_sorted(), "ids rise: {made:x?}");
    for id in &made {
        home.make(Call::ShareRemove, &[share, *id]);
    }
    let again = std::iter::from_fn(|| home.run(Call::ShareSegment, &[share, 1, 0, 0]).ok()).count();
    assert_eq!(again, made.len(), "pages of the pool are missing");
    assert_eq!(home.world.used(), used);
    for id in [0, 1, 9 << 48, u64::MAX] {
        assert_eq!(home.run(Call::ShareImport, &[PCORE, RAM, id]), Err(Error::NotFound));
    }
    home.drop(share);
    home.close();
}

#[test]
fn shares_that_hold_each_other_go_with_the_last_name() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 64, lock::SPIN);
    block.be(0);
    let mut outer = share;
    // Deeper than recursion on a kernel's stack would bear.
    for _ in 0..20 {
        let [handle, _, _] = home.run(Call::ShareAlloc, &[outer, 0, 0, lock::SPIN, 0, 0]).unwrap();
        let inner = home.make(Call::ShareAdd, &[NONE, handle, ALL]);
        home.make(Call::ShareAdd, &[inner, outer, ALL]);
        if outer != share {
            home.drop(outer);
        }
        outer = inner;
    }
    home.drop(outer);
    home.drop(share);
    let held = home.world.used();
    home.ring();
    assert_eq!(home.world.used(), held, "the other core still names it");
    block.be(1);
    other.drop(imported);
    block.be(0);
    home.assert_back();
    assert!(home.world.used() + 64 <= held);
    block.be(1);
    other.close();
    block.be(0);
    home.end();
}

#[test]
fn a_revoked_pool_is_taken_from_every_core_before_its_pages_are_free() {
    let block = Block::new(2);
    let mut other = block.core(1);
    let mut home = block.core(0);
    let account = home.make(Call::RamSplit, &[RAM, 100]);
    let share = home.make(Call::ShareAlloc, &[NONE, account, 64, lock::SCALABLE_READ_WRITE, 0, 0]);
    let [segment, id, _] = home.run(Call::ShareSegment, &[share, 32, 0, 0]).unwrap();
    home.make(Call::RangeMap, &[Handle::SELF_RANGE.0, HEAP, segment, 0, 32, READ_WRITE]);
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    block.be(1);
    let imported = other.make(Call::ShareImport, &[PCORE, RAM, pool]);
    other.make(Call::RangeMap, &[Handle::SELF_RANGE.0, HEAP, in_share(imported, id), 0, 32, READ_WRITE]);
    assert!((0..32).all(|page| other.byte(HEAP + page * 4096).is_some()));
    block.be(0);
    let used = home.world.used();
    for _ in 0..10 {
        assert_eq!(home.make(Call::RamRevoke, &[account]), 1, "another core shows its pages");
    }
    assert!(home.world.used() + 64 > used, "no page is free while it is seen");
    block.be(1);
    assert_eq!(other.run(Call::ShareSegment, &[imported, 1, 0, 0]), Err(Error::PeerDead));
    assert_eq!(other.run(Call::ShareImport, &[PCORE, RAM, pool]), Err(Error::NotFound));
    (0..4).for_each(|_| _ = other.ring());
    assert!((0..32).all(|page| other.byte(HEAP + page * 4096).is_none()), "nothing is seen any more");
    assert_eq!(other.run(Call::ShareStat, &[imported]), Err(Error::BadHandle));
    other.close();
    block.be(0);
    home.ring();
    assert_eq!(home.make(Call::RamRevoke, &[account]), 0);
    assert_eq!(home.run(Call::RamStat, &[account]).unwrap()[1], 0);
    home.drop(account);
    home.close();
}

/// One core's part of the storm: every call on the same few shares and segments, in an order of its
/// own.
fn storm(core: &mut Core, root: u64, seed: u64, first: &[u64]) -> u64 {
    let mut random = Random::new(seed);
    let mut ids = first.to_vec();
    let (mut shares, mut done) = (vec![root], 0);
    for _ in 0..4000 {
        let share = random.one(&shares);
        let id = random.one(&ids);
        let kind = random.below(4);
        let choice = random.below(9);
        let answer = match choice {
            0 => core.run(Call::ShareSegment, &[share, 1 + random.below(3), id, id, random.below(2)]),
            1 => core.run(Call::ShareAlloc, &[share, 0, 0, kind, id, id]),
            2 | 3 => core.run(Call::ShareRemove, &[share, id]),
            4 => core.run(Call::ShareAdd, &[random.one(&shares), in_share(share, id), ALL]),
            5 => core.run(Call::ShareAdd, &[NONE, in_share(share, id), ALL]),
            6 if shares.len() > 1 => core.run(Call::CapDrop, &[shares.pop().unwrap()]),
            7 => core.run(Call::ShareStat, &[share]),
            _ => core.run(Call::SegmentStat, &[in_share(share, id)]),
        };
        match answer {
            Ok([_, id, _]) if choice < 2 => {
                ids.push(id);
                if ids.len() > 12 {
                    ids.swap_remove(random.below(12) as usize);
                }
            }
            Ok([handle, ..]) if choice == 5 => {
                let is_share = core.run(Call::CapStat, &[handle]).unwrap()[0] == ObjectType::Share as u64;
                if is_share && shares.len() < 4 { shares.push(handle) } else { core.drop(handle) }
            }
            Ok([pages, ..]) if choice == 8 => assert!((1..4).contains(&pages)),
            Ok(_) => (),
            Err(error) => {
                let known = [Error::BadHandle, Error::NotFound, Error::Busy, Error::NoMemory, Error::WrongType];
                assert!(known.contains(&error), "{error:?}");
                continue;
            }
        }
        done += 1;
    }
    shares.drain(1..).for_each(|handle| core.drop(handle));
    done
}

#[test]
fn three_cores_at_the_same_shares_lose_nothing() {
    const CORES: usize = 3;
    for seed in 1..=6 {
        let block = Block::new(CORES as u64);
        let mut home = block.core(0);
        let share = home.pool(200, seed % 4);
        let id = home.make(Call::SharePool, &[PCORE, share]);
        let first: Vec<u64> = (0..4).map(|_| home.run(Call::ShareSegment, &[share, 2, 0, 0]).unwrap()[1]).collect();
        let barrier = Barrier::new(CORES);
        std::thread::scope(|scope| {
            for other in 1..CORES {
                let (block, barrier, first) = (&block, &barrier, &first);
                scope.spawn(move || {
                    let mut other_core = block.core(other);
                    let imported = other_core.make(Call::ShareImport, &[PCORE, RAM, id]);
                    barrier.wait();
                    let done = storm(&mut other_core, imported, seed * 77 + other as u64, first);
                    assert!(done > 100, "too little was done: {done}");
                    other_core.drop(imported);
                    other_core.assert_back();
                    other_core.end();
                });
            }
            barrier.wait();
            storm(&mut home, share, seed * 77, &first);
        });
        home.drop(share);
        home.close();
    }
}
