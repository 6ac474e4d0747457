//! Shares of the core: groups take turns, however many contexts each has.

use super::World;
use crate::arch::context::Event;
use crate::hardware::{self, set_clock};
use crate::objects::context::Options;
use crate::objects::context::State;
use crate::objects::group::{TURN_NS, Turns};
use crate::objects::mapping::PageRun;
use crate::objects::{Context, Domain, Ptr, Ram, Schedule};
use abi::layout;

const TURN: u64 = TURN_NS as u64;
const SECOND_NS: u64 = 1_000_000_000;
const PRIORITY: usize = 1;

impl World {
    pub(super) fn account(&mut self, of: Ptr<Ram>, turns: Turns) -> Ptr<Ram> {
        of.split(&mut self.kernel, 10_000, turns).unwrap()
    }

    pub(super) fn home(&mut self, ram: Ptr<Ram>) -> Ptr<Domain> {
        let domain = Ptr::<Domain>::create(&mut self.kernel, ram, 0, super::name()).unwrap();
        domain.keep_alive();
        domain
    }

    /// One that computes for ever.
    pub(super) fn busy(&mut self, domain: Ptr<Domain>, number: u64, priority: usize, slice_ns: u64) -> Ptr<Context> {
        let kernel = &mut *self.kernel;
        let ram = domain.ram();
        let place = PageRun { start: layout::REGIONS + number * crate::memory::PAGE_BYTES as u64, pages: 1 };
        let options = Options { has_vectors: false, is_linux: false, priority_max: priority };
        let context = Ptr::<Context>::create(kernel, ram, domain, place, options).unwrap();
        let time = kernel.create(ram, |header| Schedule::new(header, context, priority, slice_ns)).unwrap();
        context.schedule.set(Some(time));
        kernel.start(context, 0x1000, 0x2000, [0; 2]);
        context
    }

    /// Plays so many nanoseconds: the timer fires when it was armed for.
    fn play(&mut self, for_ns: u64) {
        let end_ns = hardware::now_ns() + for_ns;
        self.kernel.decide();
        while hardware::now_ns() < end_ns {
            let at_ns = hardware::deadline().filter(|at_ns| *at_ns > hardware::now_ns());
            set_clock(at_ns.unwrap_or(u64::MAX).min(end_ns));
            self.kernel.step(Event::Timer);
        }
        self.kernel.update_accounting();
    }

    pub(super) fn end_homes(mut self, homes: &[Ptr<Domain>], accounts: &[Ptr<Ram>]) {
        for home in homes {
            let death = crate::objects::domain::Death::by_call(abi::DeathCause::Killed, 0);
            self.kernel.kill(*home, death);
            self.kernel.release(*home);
        }
        accounts.iter().for_each(|account| self.kernel.release(*account));
        self.kernel.drain_all();
    }
}

fn percent(of: Ptr<Domain>, total_ns: u64) -> u64 {
    of.cpu_ns.get() * 100 / total_ns
}

/// A program of 200 contexts with slices of a second, in two accounts of its own, beside one with
/// one context: each has half the core.
#[test]
fn many_contexts_get_what_one_gets() {
    set_clock(0);
    let mut world = World::new(4000);
    let root = world.ram;
    let (many_ram, one_ram) = (world.account(root, Turns::Own), world.account(root, Turns::Own));
    let below = world.account(many_ram, Turns::Parents);
    let homes = [many_ram, below, one_ram].map(|ram| world.home(ram));
    for number in 0..100 {
        world.busy(homes[0], number, PRIORITY, SECOND_NS);
        world.busy(homes[1], number, PRIORITY, SECOND_NS);
    }
    world.busy(homes[2], 0, PRIORITY, TURN);
    world.play(10 * SECOND_NS);
    assert_eq!(percent(homes[2], 10 * SECOND_NS), 50);
    // Within the group the slices are as long as its own contexts want them.
    assert!(homes[0].cpu_ns.get() + homes[1].cpu_ns.get() >= 49 * SECOND_NS / 10);
    world.end_homes(&homes, &[many_ram, below, one_ram]);
}

/// Forks have accounts beside that of their parent, and share its turns.
#[test]
fn forks_share_the_turns_of_their_first_parent() {
    set_clock(0);
    let mut world = World::new(4000);
    let root = world.ram;
    let first = world.account(root, Turns::Own);
    let mut accounts = vec![first];
    for _ in 0..30 {
        let parent = *accounts.last().unwrap();
        accounts.push(world.account(root, Turns::Of(parent)));
    }
    let neighbour = world.account(root, Turns::Own);
    let homes: Vec<_> = accounts.iter().map(|ram| world.home(*ram)).collect();
    for home in &homes {
        world.busy(*home, 0, PRIORITY, TURN);
    }
    let beside = world.home(neighbour);
    world.busy(beside, 0, PRIORITY, TURN);
    // The leader's account is dropped first: its turns stay as long as anybody shares them.
    world.kernel.release(accounts.remove(0));
    world.play(2 * SECOND_NS);
    assert_eq!(percent(beside, 2 * SECOND_NS), 50);
    let all: Vec<_> = homes.into_iter().chain([beside]).collect();
    accounts.push(neighbour);
    world.end_homes(&all, &accounts);
}

/// What shares the turns of another account may get some of its own: what it made before has them,
/// whether it waits, runs or sleeps, and what it makes later.
#[test]
fn an_account_begins_turns_of_its_own() {
    set_clock(0);
    let mut world = World::new(4000);
    let root = world.ram;
    let first = world.account(root, Turns::Own);
    let forks: Vec<_> = (0..30).map(|_| world.account(root, Turns::Of(first))).collect();
    let moved = world.account(root, Turns::Of(first));
    let accounts: Vec<_> = [first].into_iter().chain(forks).chain([moved]).collect();
    let mut homes: Vec<_> = accounts.iter().map(|ram| world.home(*ram)).collect();
    let own = *homes.last().unwrap();
    for home in &homes {
        world.busy(*home, 0, PRIORITY, TURN);
    }
    world.busy(own, 1, PRIORITY, TURN);
    world.play(SECOND_NS);
    assert!(percent(own, SECOND_NS) <= 7, "two of 33 contexts");
    let used = root.used();
    moved.begin_turns(&mut world.kernel).unwrap();
    moved.begin_turns(&mut world.kernel).unwrap();
    assert_eq!(root.used(), used + 1, "a page for the group, once");
    world.kernel.scheduler.assert_queues();
    let before_ns = own.cpu_ns.get();
    world.busy(own, 2, PRIORITY, TURN);
    let later = world.account(root, Turns::Of(moved));
    homes.push(world.home(later));
    world.busy(homes[homes.len() - 1], 0, PRIORITY, TURN);
    world.play(SECOND_NS);
    let together_ns = own.cpu_ns.get() - before_ns + homes[homes.len() - 1].cpu_ns.get();
    assert!((49..=51).contains(&(together_ns * 100 / SECOND_NS)), "{together_ns} ns");
    assert_eq!(root.begin_turns(&mut world.kernel), Err(abi::Error::BadArgument));
    let many = world.account(root, Turns::Of(first));
    homes.push(world.home(many));
    for number in 0..64 {
        world.busy(homes[homes.len() - 1], number, PRIORITY, TURN);
    }
    assert_eq!(many.begin_turns(&mut world.kernel), Err(abi::Error::Busy));
    world.end_homes(&homes, &accounts.into_iter().chain([later, many]).collect::<Vec<_>>());
}

/// Turns that nobody shares any more go with the account that led them.
#[test]
fn an_account_that_begins_its_own_turns_lets_go_of_those_it_shared() {
    let mut world = World::new(4000);
    let root = world.ram;
    let leader = world.account(root, Turns::Own);
    let moved = world.account(root, Turns::Of(leader));
    let objects = world.kernel.kernel_objects;
    moved.begin_turns(&mut world.kernel).unwrap();
    world.kernel.release(leader);
    world.kernel.drain_all();
    assert_eq!(world.kernel.kernel_objects, objects - 1, "nobody holds the leader");
    world.kernel.release(moved);
    world.assert_empty();
}

/// One that waits now and then comes to its turn after one turn of the other group at most, and
/// sets its own slices as often as it likes without getting more.
#[test]
fn a_group_that_wakes_waits_for_a_turn_at_most() {
    set_clock(0);
    let mut world = World::new(2000);
    let root = world.ram;
    let accounts = [Turns::Own, Turns::Own].map(|turns| world.account(root, turns));
    let homes = accounts.map(|ram| world.home(ram));
    for number in 0..20 {
        world.busy(homes[0], number, PRIORITY, SECOND_NS);
    }
    let neighbour = world.busy(homes[1], 0, PRIORITY, TURN);
    world.play(TURN * 7 / 2);
    for _ in 0..20 {
        if world.kernel.scheduler.current() == Some(neighbour) {
            world.kernel.block(neighbour, State::Waiting);
            world.play(TURN / 3);
        }
        world.kernel.signal(neighbour, 1);
        let before_ns = homes[1].cpu_ns.get();
        world.play(TURN + TURN / 10);
        assert!(homes[1].cpu_ns.get() > before_ns, "it waited for longer than a turn");
    }
    world.end_homes(&homes, &accounts);
}

/// Three groups of several contexts each wait, yield and are preempted as chance has it: somebody
/// who only computes waits for one turn of each at most, and the queues stay as they are meant to.
#[test]
fn a_context_that_computes_waits_for_one_turn_of_each_group_at_most() {
    const STEP_NS: u64 = 2_000_000;
    set_clock(0);
    let mut world = World::new(4000);
    let root = world.ram;
    let accounts: [_; 5] = core::array::from_fn(|_| world.account(root, Turns::Own));
    let homes = accounts.map(|ram| world.home(ram));
    let [.., steady, better_home] = homes;
    let mut rivals = Vec::new();
    for home in &homes[..3] {
        for (number, slice_ns) in [100_000, TURN / 2, TURN, SECOND_NS].into_iter().enumerate() {
            rivals.push(world.busy(*home, number as u64, PRIORITY, slice_ns));
        }
    }
    let computes = world.busy(steady, 0, PRIORITY, TURN);
    let better = world.busy(better_home, 0, PRIORITY + 1, TURN);
    let mut random = ::fuzz::Random::new(3);
    let (mut had_ns, mut since_ns, mut longest_ns) = (0, 0, 0);
    for _ in 0..20_000 {
        let current = world.kernel.scheduler.current().filter(|context| *context != computes);
        match random.below(12) {
            0..4 => current.iter().for_each(|context| world.kernel.block(*context, State::Waiting)),
            4 if current.is_some() => world.kernel.scheduler.yield_slice(),
            5 => world.kernel.signal(better, 1),
            _ => world.kernel.signal(random.one(&rivals), 1),
        }
        world.play(1 + random.below(STEP_NS));
        world.kernel.scheduler.assert_queues();
        // Only its equals' time counts.
        let clock_ns = hardware::now_ns() - better_home.cpu_ns.get();
        if steady.cpu_ns.get() > had_ns {
            (had_ns, since_ns) = (steady.cpu_ns.get(), clock_ns);
        }
        longest_ns = longest_ns.max(clock_ns - since_ns);
    }
    let clock_ns = hardware::now_ns() - better_home.cpu_ns.get();
    assert!(had_ns >= clock_ns / 4 - TURN, "its share is {had_ns} of {clock_ns} ns");
    assert!((TURN..=3 * TURN).contains(&longest_ns), "it waited for {longest_ns} ns");
    world.end_homes(&homes, &accounts);
}

#[test]
fn setting_slices_gains_nothing() {
    set_clock(0);
    let mut world = World::new(2000);
    let root = world.ram;
    let account = world.account(root, Turns::Own);
    let homes = [account, account].map(|ram| world.home(ram));
    let setter = world.busy(homes[0], 0, PRIORITY, 2_000_000);
    world.busy(homes[1], 0, PRIORITY, 2_000_000);
    let time = setter.schedule.get().unwrap();
    for step in 0..2000 {
        world.play(100_000);
        world.kernel.scheduler.set_slice(time, if step % 2 == 0 { 1_999_000 } else { 2_000_000 }, 0);
    }
    assert_eq!(time.used_ns(), homes[0].cpu_ns.get(), "the accounting is right all the same");
    assert!((48..=52).contains(&percent(homes[0], 200_000_000)), "{}", percent(homes[0], 200_000_000));
    world.end_homes(&homes, &[account]);
}

/// Time with a budget gets that and no more, with and without rivals; the rest of the core idles or
/// is theirs.
#[test]
fn a_budget_bounds_what_runs_on_it() {
    const BUDGET: u64 = 2_000_000;
    const PERIOD: u64 = 10_000_000;
    for has_rival in [false, true] {
        set_clock(0);
        let mut world = World::new(2000);
        let root = world.ram;
        let accounts = [Turns::Own, Turns::Own].map(|turns| world.account(root, turns));
        let homes = accounts.map(|ram| world.home(ram));
        let bounded = world.busy(homes[0], 0, 5, 1_000_000);
        if has_rival {
            world.busy(homes[1], 0, PRIORITY, TURN);
        }
        let time = bounded.schedule.get().unwrap();
        world.kernel.scheduler.set_slice(time, BUDGET, PERIOD);
        world.play(SECOND_NS);
        // The first slice was shorter than the budget and is no period of its own.
        let share_ns = homes[0].cpu_ns.get();
        assert!((SECOND_NS / 5 - BUDGET..=SECOND_NS / 5 + BUDGET).contains(&share_ns), "{share_ns} ns");
        assert_eq!(time.used_ns(), share_ns);
        if has_rival {
            assert_eq!(homes[1].cpu_ns.get(), SECOND_NS - share_ns);
        }
        // Without a budget it has the core again.
        world.kernel.scheduler.set_slice(time, BUDGET, 0);
        world.play(SECOND_NS);
        assert!(homes[0].cpu_ns.get() - share_ns >= SECOND_NS - PERIOD);
        world.end_homes(&homes, &accounts);
    }
}

/// In n periods on end at most n + 1 budgets, wherever they begin, and however it sleeps.
#[test]
fn a_sleeper_gets_no_more_than_its_budgets() {
    const BUDGET: u64 = 1_000_000;
    const PERIOD: u64 = 10_000_000;
    set_clock(0);
    let mut world = World::new(2000);
    let root = world.ram;
    let account = world.account(root, Turns::Own);
    let home = world.home(account);
    let bounded = world.busy(home, 0, PRIORITY, BUDGET);
    let time = bounded.schedule.get().unwrap();
    world.kernel.scheduler.set_slice(time, BUDGET, PERIOD);
    let mut random = ::fuzz::Random::new(7);
    let mut past = std::collections::VecDeque::new();
    for _ in 0..5000 {
        if world.kernel.scheduler.current() == Some(bounded) && random.once_in(3) {
            world.kernel.block(bounded, State::Waiting);
        } else if random.once_in(2) {
            world.kernel.signal(bounded, 1);
        }
        world.play(100_000 * (1 + random.below(20)));
        past.push_back((hardware::now_ns(), home.cpu_ns.get()));
        while past.front().is_some_and(|(at_ns, _)| hardware::now_ns() - at_ns > 3 * PERIOD) {
            past.pop_front();
        }
        let (_, before_ns) = past[0];
        assert!(home.cpu_ns.get() - before_ns <= 4 * BUDGET, "more than four budgets in three periods");
    }
    assert!(home.cpu_ns.get() > 100 * BUDGET, "it ran");
    world.end_homes(&[home], &[account]);
}
