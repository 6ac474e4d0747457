//! What a scripted domain is given: objects of every type, some with all rights, some of a
//! bystander's with few; and whether the bystander is unhurt afterwards.

use alloc::vec::Vec;

use abi::layout::{context, lock, protection};
use abi::start::DeviceRecord;
use abi::{DeathCause, Error, Handle, ObjectType, Rights};
use fuzz::Pool;
use runtime::Start;
use worker::{Job, ScriptedDomain, Worker};

use crate::barrier::Barrier;
use crate::secret::WORDS;
use crate::{Failure, require};

/// Most pages of a round, and of an account that a scripted domain may split and revoke.
const PAGES: u64 = 3000;
const OWN_PAGES: u64 = 1200;
/// Pages of the pool that all cores share.
const POOL_PAGES: u64 = 256;
/// Of a range that all cores share: the smallest.
const RANGE_PAGES: u64 = 512;
/// Of the segment that scripted domains may only read.
const SHOWN_PAGES: u64 = 2;
const SHOWN_AT: u64 = abi::layout::REGIONS + (3 << 38);
const SHOWN_WORD: u64 = 0x1d1e_d0e5_0000_0000;
/// Numbers of workers that live at the same time.
pub const SCRIPTED: u64 = 0;
const BYSTANDER: u64 = 1;
/// Every right but those by which one does with a core, or with the machine, what one likes.
const ASIDE: Rights = Rights(Rights::ALL.0 & !Rights::CONTROL.0 & !Rights::POWER.0);
/// Time a bystander has to answer.
const PATIENCE_NS: u64 = 5_000_000_000;

/// What lives for a round, all paid by one account.
pub struct TestObjects {
    /// The account.
    pub ram: Handle,
    bystander: Worker,
    entrance: Handle,
    given: Vec<(Handle, Rights, ObjectType)>,
}

fn core_of(start: &Start) -> Result<Handle, Failure> {
    start.capability("cores").ok_or(Failure("the description does not give `cores`".into()))
}

/// The first device that nobody has, on core 0: interrupts of lines come there only.
fn device(start: &Start, ram: Handle) -> Result<Option<Handle>, Failure> {
    if start.core() != 0 {
        return Ok(None);
    }
    let core = core_of(start)?;
    let all = (0..).map_while(|index| sys::device_list(index).ok());
    let is_virtio = |record: &DeviceRecord| record.vendor == 0x1af4;
    Ok(all.filter(is_virtio).find_map(|record| sys::device_alloc(core, ram, record.hwid).ok()))
}

impl TestObjects {
    /// Takes an account, makes all and meets the other cores about what is shared with them.
    pub async fn new(start: &Start, barrier: &mut Barrier) -> Result<TestObjects, Failure> {
        let core = core_of(start)?;
        let ram = sys::ram_split(Handle::SELF_RAM, PAGES, Handle::NONE)?;
        let bystander = Worker::paid_by(ram, BYSTANDER, Job::Answer)?;
        bystander.start([0, 0])?;
        let entrance = bystander.portal(7)?;
        let (shown, _) = sys::segment_alloc(ram, SHOWN_PAGES, 0)?;
        let both = protection::READ | protection::WRITE;
        sys::range_map(Handle::SELF_RANGE, SHOWN_AT, shown, 0, SHOWN_PAGES, both)?;
        for number in 0..SHOWN_PAGES * WORDS {
            // SAFETY: mapped just now, by nobody else, as words.
            unsafe { ((SHOWN_AT + number * 8) as *mut u64).write_volatile(SHOWN_WORD | number) };
        }
        let semaphore = sys::semaphore_alloc(ram, 0)?;
        barrier
            .tell_slots([sys::wake_slot_alloc(core, bystander.context, 1)?, sys::wake_slot_alloc(core, semaphore, 0)?]);
        let own_pool = if start.core() == 0 {
            let (share, _) = sys::share_pool_alloc(ram, POOL_PAGES, lock::MCS, [1, 2])?;
            let (_, range, _) = sys::share_range(share, RANGE_PAGES, lock::READ_WRITE, [3, 4], 0)?;
            barrier.tell_pool(sys::share_pool(core, share)?, range);
            Some(share)
        } else {
            None
        };
        barrier.all("what is shared").await?;
        let (pool, range) = barrier.pool();
        let share = own_pool.map_or_else(|| sys::share_import(core, ram, pool), Ok)?;
        let range = Handle::in_share(share, range).ok_or(Error::BadHandle)?;
        let range = sys::share_add(Handle::NONE, range, Rights::ALL)?;
        let (next, slots) = barrier.next_slots();
        let [context_there, semaphore_there] = slots.map(|slot| sys::wake_slot_import(core, ram, next, slot));
        let (free, _) = sys::segment_alloc(ram, 4, 0)?;
        let to_read = Rights::READ.union(Rights::GRANT);
        let device = device(start, ram)?;
        let mut given = Vec::from([
            (ram, to_read, ObjectType::Ram),
            (core, ASIDE, ObjectType::Pcore),
            (share, Rights::ALL, ObjectType::Share),
            (range, Rights::ALL, ObjectType::AddressRange),
            (shown, to_read.union(Rights::EXECUTE), ObjectType::Segment),
            (free, Rights::ALL, ObjectType::Segment),
            (semaphore, Rights::ALL, ObjectType::Semaphore),
            (context_there?, Rights::NOTIFY, ObjectType::RemoteContext),
            (semaphore_there?, Rights::NOTIFY.union(Rights::GRANT), ObjectType::RemoteContext),
            (bystander.domain, Rights::READ, ObjectType::Domain),
            (bystander.range()?, to_read, ObjectType::AddressRange),
            (bystander.context, to_read, ObjectType::ExecutionContext),
            (entrance, Rights::CALL, ObjectType::Portal),
        ]);
        // What reads its registers could make it reach memory; the rest is the kernel's to bound.
        let rest = Rights::CONTROL.union(Rights::WRITE).union(Rights::GRANT);
        given.extend(device.map(|device| (device, rest, ObjectType::Device)));
        Ok(TestObjects { ram, bystander, entrance, given })
    }

    /// A new scripted domain with all of it, and what it holds. Every second one may have a proxy,
    /// the others upcalls.
    pub fn scripted(&self, number: u64) -> Result<(ScriptedDomain, Pool), Failure> {
        let flags = context::FPU | if number.is_multiple_of(2) { context::LINUX } else { 0 };
        let scripted = ScriptedDomain::with_flags(self.ram, SCRIPTED, flags)?;
        let mut held = Vec::from([
            (Handle::SELF_DOMAIN.0, ObjectType::Domain),
            (Handle::SELF_RANGE.0, ObjectType::AddressRange),
            (Handle::SELF_RAM.0, ObjectType::Ram),
            (Handle::SELF_CONTEXT.0, ObjectType::ExecutionContext),
        ]);
        let domain = scripted.worker.domain;
        let mut give = |handle: Handle, rights: Rights, object_type: ObjectType| -> Result<(), Error> {
            let there = sys::domain_grant(domain, handle, with_grant(handle, rights)?)?;
            held.push((there.0, object_type));
            Ok(())
        };
        let own = sys::ram_split(self.ram, OWN_PAGES, Handle::NONE)?;
        give(own, Rights::ALL, ObjectType::Ram)?;
        sys::cap_drop(own)?;
        give(domain, Rights::ALL, ObjectType::Domain)?;
        self.given.iter().try_for_each(|(handle, rights, object_type)| give(*handle, *rights, *object_type))?;
        Ok((scripted, Pool::new(&held)))
    }

    /// Whether what scripted domains had no right to change is unchanged, and the bystander
    /// answers.
    pub fn check(&self) -> Result<(), Failure> {
        for number in 0..SHOWN_PAGES * WORDS {
            // SAFETY: `new` mapped it, and nobody unmaps it before `end`.
            let word = unsafe { ((SHOWN_AT + number * 8) as *const u64).read_volatile() };
            require!(word == SHOWN_WORD | number, "memory that was shown to be read has {word:#x} at word {number}");
        }
        let state = sys::domain_state(self.bystander.domain)?;
        require!(state.cause == DeathCause::Alive as u64, "a domain that nobody had a right to end ended: {state:?}");
        let answer = sys::portal_call(self.entrance, [1, 2, 3, 4], runtime::now_ns() + PATIENCE_NS);
        require!(answer.is_ok(), "a domain that only answers gives {answer:?}");
        Ok(())
    }

    /// Gives everything back; an error if the account keeps anything.
    pub fn end(self) -> Result<(), Failure> {
        let ram = self.ram;
        // SAFETY: mapped by `new` and used by `check` only.
        unsafe { sys::range_unmap(Handle::SELF_RANGE, SHOWN_AT, SHOWN_PAGES) }?;
        let core =
            self.given.iter().find(|(.., object_type)| *object_type == ObjectType::Pcore).map(|(core, ..)| *core);
        drop(self);
        // SAFETY: nothing that it pays for is mapped here any more.
        while !unsafe { sys::ram_revoke(ram) }? {}
        let (_, used, _) = sys::ram_stat(ram)?;
        require!(used == 0, "the account of the round still pays for {used} pages after it was revoked");
        sys::cap_drop(ram)?;
        require!(core.is_some_and(|core| sys::cap_stat(core).is_ok()), "the fuzzer's own capability is gone");
        Ok(())
    }
}

/// Rights to grant with; a capability that we hold with fewer is granted with what we have.
fn with_grant(handle: Handle, wanted: Rights) -> Result<Rights, Error> {
    sys::cap_stat(handle).map(|(_, _, held)| held.intersection(wanted))
}
