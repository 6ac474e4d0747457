//! Every argument that is a capability, as the call's row says: an empty slot, an object of a wrong
//! type and a capability with one right too few are each refused, each with its own error.

use super::revoke::Actor;
use super::{MACHINE, World};
use crate::boot::info::CoreInfo;
use crate::devices::{Bar, DeviceInfo};
use crate::hardware;
use crate::memory::PhysAddr;
use crate::objects::share::Capability;
use abi::call::Word;
use abi::call::kinds::{Number, Place};
use abi::{Call, Error, Handle, ObjectType, Rights, layout};

const HWID: u32 = 8;
const REGISTERS: Bar = Bar { base: PhysAddr(0xfe00_0000), bytes: 0x1000, is_mmio: true };
static WITH_A_CARD: CoreInfo = CoreInfo {
    devices: &[DeviceInfo { hwid: HWID, vendor: 0x1af4, bars: [REGISTERS; 6], ..DeviceInfo::NONE }],
    ..MACHINE
};
/// A slot that nobody fills.
const EMPTY: u64 = 50;
/// Where a capability with fewer rights is put.
const WEAK: u64 = 51;

/// A monitor on a machine with a card, and what it has.
fn holder(world: &mut World) -> (Actor, Objects) {
    let domain = world.monitor();
    world.kernel.info = Some(&WITH_A_CARD);
    let context = domain.share().get(Handle::SELF_CONTEXT).unwrap().object.cast().unwrap();
    let actor = Actor { domain, context };
    (actor, Objects::make(world, actor))
}

/// One object of each type that a program can name, by a capability with all rights.
struct Objects(Vec<(ObjectType, u64)>);

impl Objects {
    fn make(world: &mut World, actor: Actor) -> Objects {
        let ram = world.make(actor, Call::RamSplit, &[Handle::ROOT_RAM.0, 500]);
        let pcore = Handle::PCORE.0;
        let mut all = vec![(ObjectType::Ram, ram), (ObjectType::Pcore, pcore)];
        let mut make = |object_type, call, words: &[u64]| {
            let made = world.make(actor, call, words);
            all.push((object_type, made));
            made
        };
        let domain = make(ObjectType::Domain, Call::DomainAlloc, &[ram]);
        make(ObjectType::Segment, Call::SegmentAlloc, &[ram, 1]);
        make(ObjectType::AddressRange, Call::RangeAlloc, &[ram, 512]);
        make(ObjectType::Share, Call::ShareAlloc, &[0, ram, 16, layout::lock::SPIN]);
        let context = make(ObjectType::ExecutionContext, Call::ContextAlloc, &[ram, domain, layout::CONTROL_PAGE]);
        make(ObjectType::SchedulingContext, Call::ContextSchedule, &[ram, context, 1, 1000]);
        make(ObjectType::Portal, Call::PortalAlloc, &[ram, context, 1, layout::portal::MAILBOX]);
        make(ObjectType::Semaphore, Call::SemaphoreAlloc, &[ram, 1]);
        make(ObjectType::RemoteContext, Call::WakeSlotImport, &[pcore, ram, 1, 1]);
        make(ObjectType::Device, Call::DeviceAlloc, &[pcore, ram, HWID.into()]);
        Objects(all)
    }

    /// A handle for one of these types; of any for none.
    fn of(&self, types: &[ObjectType]) -> u64 {
        self.0.iter().find(|(object_type, _)| types.is_empty() || types.contains(object_type)).expect("one of each").1
    }

    /// A handle for none of these types.
    fn but(&self, types: &[ObjectType]) -> Option<u64> {
        let mut others = self.0.iter().filter(|(object_type, _)| !types.contains(object_type));
        if types.is_empty() { None } else { others.next().map(|(_, handle)| *handle) }
    }

    /// Words that would do.
    fn words(&self, call: Call) -> Vec<u64> {
        let word = |word| match word {
            Word::Capability { place: Place::RootOrNone, .. } => Handle::NONE.0,
            Word::Capability { types, .. } => self.of(types),
            Word::Number(_) => 1,
        };
        call.words().map(word).collect()
    }
}

/// Puts a capability for the same object, with these rights, into its place.
fn weaken(world: &mut World, actor: Actor, handle: u64, rights: Rights) {
    let object = actor.domain.share().get(Handle(handle)).unwrap().object;
    world.kernel.retain_any(object);
    actor.domain.insert(WEAK as usize, Capability { object, badge: 1, rights });
}

#[test]
fn every_capability_is_checked_as_the_row_says() {
    let mut world = World::new(2000);
    let (actor, objects) = holder(&mut world);
    let mut refused = [0; 3];
    for (call, name) in Call::ALL {
        for (index, word) in call.words().enumerate() {
            let Word::Capability { types, rights, .. } = word else { continue };
            let mut expect = |world: &mut World, handle: u64, error: Error, of: usize| {
                let mut words = objects.words(*call);
                words[index] = handle;
                assert_eq!(world.run(actor, *call, &words), Err(error), "{name}, argument {index}");
                assert!(call.errors().contains(error), "{name} lists {error:?}");
                refused[of] += 1;
            };
            expect(&mut world, EMPTY, Error::BadHandle, 0);
            if let Some(other) = objects.but(types) {
                expect(&mut world, other, Error::WrongType, 1);
            }
            for bit in (0..u32::BITS).map(|bit| Rights(1 << bit)).filter(|bit| rights.contains(*bit)) {
                weaken(&mut world, actor, objects.of(types), Rights(Rights::ALL.0 & !bit.0));
                expect(&mut world, WEAK, Error::NoRights, 2);
                actor.domain.remove(&mut world.kernel, Handle(WEAK)).unwrap();
            }
        }
    }
    // Some may be of any type, or need no right.
    assert!(refused[0] > 100 && refused[1] > 95 && refused[2] > 85, "{refused:?}");
    hardware::free_device(0);
}

/// Every argument whose kind has limits: one less and one more are refused, by the kind alone.
#[test]
fn every_number_is_kept_within_its_limits() {
    let mut world = World::new(2000);
    let (actor, objects) = holder(&mut world);
    let mut refused = 0;
    for (call, name) in Call::ALL {
        for (index, word) in call.words().enumerate() {
            let Word::Number(number) = word else { continue };
            let limits = if number == Number::Core { 0..=MACHINE.cores.len() as u64 - 1 } else { number.limits() };
            let beyond = [limits.start().checked_sub(1), limits.end().checked_add(1), limits.end().checked_mul(2)];
            for word in beyond.into_iter().flatten() {
                let mut words = objects.words(*call);
                words[index] = word;
                assert_eq!(
                    world.run(actor, *call, &words),
                    Err(Error::BadArgument),
                    "{name}, argument {index}, {word}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 40, "{refused}");
    hardware::free_device(0);
}

/// What a row cannot say: rights that are needed of some objects only, or that decide what is
/// given.
#[test]
fn rights_count_beyond_what_the_row_asks() {
    let mut world = World::new(2000);
    let (actor, objects) = holder(&mut world);
    let [ram, domain, device] =
        [ObjectType::Ram, ObjectType::Domain, ObjectType::Device].map(|object_type| objects.of(&[object_type]));
    let context = |world: &mut World, domain: u64, page: u64| {
        world.run(actor, Call::ContextAlloc, &[ram, domain, layout::HEAP + page * abi::PAGE_BYTES]).map(drop)
    };
    weaken(&mut world, actor, domain, Rights(Rights::ALL.0 & !Rights::WRITE.0));
    assert_eq!(context(&mut world, WEAK, 0), Err(Error::NoRights), "a context of another's domain");
    assert_eq!([domain, Handle::SELF_DOMAIN.0].map(|of| context(&mut world, of, 0)), [Ok(()); 2]);
    actor.domain.remove(&mut world.kernel, Handle(WEAK)).unwrap();
    weaken(&mut world, actor, device, Rights::READ);
    let [reads, writes] = [WEAK, device].map(|device| {
        let window = world.make(actor, Call::DeviceWindow, &[device, ram, 0]);
        actor.domain.share().get(Handle(window)).unwrap().rights.contains(Rights::WRITE)
    });
    assert!(!reads && writes, "registers are written by who may write the device");
    actor.domain.remove(&mut world.kernel, Handle(WEAK)).unwrap();
    for (turns, right) in [(Handle::PCORE.0, Rights::CONTROL), (ram, Rights::WRITE)] {
        weaken(&mut world, actor, turns, Rights(Rights::ALL.0 & !right.0));
        let split = |world: &mut World, turns: u64| world.run(actor, Call::RamSplit, &[ram, 10, turns]).map(drop);
        assert_eq!([WEAK, turns].map(|turns| split(&mut world, turns)), [Err(Error::NoRights), Ok(())], "{right:?}");
        actor.domain.remove(&mut world.kernel, Handle(WEAK)).unwrap();
    }
    hardware::free_device(0);
}

/// Each context of a row that make each other, in a domain of its own and paid by an account of its
/// own, gives at most what its maker let it give.
#[test]
fn a_maximum_is_inherited() {
    let mut world = World::new(2000);
    let mut maker = world.outsider();
    let mut all = vec![maker];
    for priority_max in [5, 2, 2, 0] {
        let account = world.make(maker, Call::RamSplit, &[Handle::ROOT_RAM.0, 300]);
        let domain = world.make(maker, Call::DomainAlloc, &[account]);
        let words = [account, domain, layout::CONTROL_PAGE, 0, priority_max];
        let context = world.make(maker, Call::ContextAlloc, &words);
        let of = |handle: u64| maker.domain.share().get(Handle(handle)).unwrap().object;
        let made = Actor { domain: of(domain).cast().unwrap(), context: of(context).cast().unwrap() };
        world.kernel.retain(made.domain);
        world.kernel.retain(made.context);
        world.give(made, Handle::ROOT_RAM.0 as usize, of(account));
        let child = world.make(made, Call::DomainAlloc, &[Handle::ROOT_RAM.0]);
        let mut allocate = |priority_max: u64| {
            let words = [Handle::ROOT_RAM.0, child, layout::CONTROL_PAGE, 0, priority_max];
            world.run(made, Call::ContextAlloc, &words).map(|[context, ..]| context)
        };
        assert_eq!(allocate(priority_max + 1), Err(Error::NoRights), "a maximum above {priority_max}");
        let context = allocate(priority_max).unwrap();
        let mut schedule = |priority: u64| {
            world.run(made, Call::ContextSchedule, &[Handle::ROOT_RAM.0, context, priority, 1000]).map(drop)
        };
        assert_eq!(schedule(priority_max + 1), Err(Error::NoRights), "time above {priority_max}");
        assert_eq!(schedule(priority_max), Ok(()));
        all.push(made);
        maker = made;
    }
    all.reverse();
    world.leave_nothing(&all);
}
