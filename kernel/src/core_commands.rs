//! Commands of core 0 to the other cores, and the states of these.
//!
//! Each core has a command, in core 0's memory, and a state, in its own. Each is written by its
//! owner alone and read by the other; a wake bit (`pcore::CORE_SLOT`) says that it changed, and
//! both sides read the word itself, however often the bit came.
//!
//!   core 0                           another core
//!   write plan, command = Run(run)
//!   wake, or start it ------------>  read command, copy the plan
//!   see Running(run)    <----------  state = Running(run), wake
//!   command = Halt(run), wake ---->  destroy all of the run
//!   see Halted(run)     <----------  state = Halted(run), wake
//! A core that halts by itself does the last step without a command. The number of the run tells a
//! halt that core 0 waits for from an older one.
//!
//! | a core's state | by what | next |
//! |---|---|---|
//! | `Never`, `Halted` | it begins the run of its command | `Running` of the new run |
//! | `Never`, `Halted` | it got a halt before it began | `Halted` of the new run |
//! | `Running` | all of that run is destroyed | `Halted` of that run |
//!
//! | core 0's command | by what | next |
//! |---|---|---|
//! | `Halt`, or `Run` of one that halted by itself | `PcoreRun` | `Run` of the next run |
//! | `Run` | `PcoreHalt`, or the last name is dropped | `Halt` of that run |
//!
//! The writer of a state or a command asserts that it follows from the one that it wrote before.
//! The numbers of new runs come from other cores' memory: nothing is asserted of them.

use crate::arch::{cores, instance};
use crate::boot::info::CORES_MAX;
use crate::memory::PhysAddr;
use core::sync::atomic::{AtomicU64, Ordering};

/// The state of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its kernel never ran.
    Never,
    /// It runs the run of this number.
    Running(u32),
    /// That run is over.
    Halted(u32),
}

/// A command to a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreCommand {
    /// End the run of this number.
    Halt(u32),
    /// Run the plan (`pcore::Plan`) at this address, which stays as it is until the core has
    /// halted.
    Run(u32, PhysAddr),
}

impl CoreCommand {
    /// Whether core 0, which sent this one, may send `next`.
    pub(crate) fn may_become(self, next: CoreCommand) -> bool {
        match (self, next) {
            (_, CoreCommand::Run(..)) => true,
            (CoreCommand::Run(before, _), CoreCommand::Halt(run)) => before == run,
            (CoreCommand::Halt(_), CoreCommand::Halt(_)) => false,
        }
    }
}

/// High half of a state that was written: memory of a core that never ran may hold anything.
const MARK: u64 = 0x5045_4c41 << 32;

impl State {
    /// Whether it runs.
    pub fn is_running(self) -> bool {
        matches!(self, State::Running(_))
    }

    /// The number of the next run.
    pub fn next_run(self) -> u32 {
        match self {
            State::Never => 1,
            State::Running(run) | State::Halted(run) => (run + 1) & (u32::MAX >> 1),
        }
    }

    /// Whether a core that stands so may say this next.
    pub(crate) fn may_become(self, next: State) -> bool {
        match self {
            State::Never | State::Halted(_) => next != State::Never,
            State::Running(run) => next == State::Halted(run),
        }
    }

    fn encode(self) -> u64 {
        match self {
            State::Never => 0,
            State::Running(run) => word(run, true),
            State::Halted(run) => word(run, false),
        }
    }

    fn decode(word: u64) -> State {
        let run = word as u32 >> 1;
        match (word & !u64::from(u32::MAX) == MARK, word & 1) {
            (false, _) => State::Never,
            (true, 0) => State::Halted(run),
            (true, _) => State::Running(run),
        }
    }
}

fn word(run: u32, runs: bool) -> u64 {
    MARK | u64::from(run) << 1 | u64::from(runs)
}

/// How long programs had a core, in one word: nanoseconds in the upper 63 bits. While one has it
/// the lowest bit is set and the others are short by the time of the clock, so the word is written
/// only when programs begin and when the core goes idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used(u64);

impl Used {
    /// Nothing yet.
    pub const NONE: Used = Used(0);

    /// From now on a program has the core; no change if one has it already.
    pub fn begin(self, now_ns: u64) -> Used {
        if self.0 & 1 == 0 { Used((self.0 >> 1).wrapping_sub(now_ns) << 1 | 1) } else { self }
    }

    /// From now on none has it.
    pub fn end(self, now_ns: u64) -> Used {
        Used(self.total_ns(now_ns) << 1)
    }

    /// All in all, in nanoseconds. A clock that is behind the other core's gives no less than
    /// nothing.
    pub fn total_ns(self, now_ns: u64) -> u64 {
        let rest = self.0 as i64 >> 1;
        let total = if self.0 & 1 == 0 { rest } else { rest.wrapping_add(now_ns as i64) };
        u64::try_from(total).unwrap_or(0)
    }
}

/// A word that other cores read often, on a cache line of its own: its neighbours would be written
/// at each call.
#[repr(align(64))]
struct Alone(AtomicU64);

static STATE: Alone = Alone(AtomicU64::new(0));
/// Of the current run.
static USED: AtomicU64 = AtomicU64::new(0);
/// Run and whether it is to run, as in a state; address of the plan. Core 0's copy counts.
static COMMANDS: [[AtomicU64; 2]; CORES_MAX] = [const { [const { AtomicU64::new(0) }; 2] }; CORES_MAX];

/// The state of a core; `Never` for one that the machine does not have.
pub fn state(core: usize) -> State {
    if core == cores::this_core() {
        return State::decode(STATE.0.load(Ordering::Relaxed));
    }
    // SAFETY: the address of another core's copy, in RAM of the direct map; only atomics touch it.
    instance::remote(core, &STATE.0)
        .map_or(State::Never, |word| State::decode(unsafe { &*word }.load(Ordering::Acquire)))
}

/// Sets this core's state; all that it did before is done.
pub fn set_state(next: State) {
    assert!(state(cores::this_core()).may_become(next), "a core's state does not follow from its last");
    STATE.0.store(next.encode(), Ordering::Release);
}

/// How long programs had a core in its current or last run, nanoseconds; 0 for one whose kernel
/// never ran.
pub fn used_ns(core: usize, now_ns: u64) -> u64 {
    if state(core) == State::Never {
        return 0;
    }
    let word = if core == cores::this_core() {
        USED.load(Ordering::Relaxed)
    } else {
        // SAFETY: as in `state`.
        instance::remote(core, &USED).map_or(0, |word| unsafe { &*word }.load(Ordering::Acquire))
    };
    Used(word).total_ns(now_ns)
}

/// Changes the account of how long programs used this core.
#[inline]
pub fn set_used(change: impl FnOnce(Used) -> Used) {
    let Used(word) = change(Used(USED.load(Ordering::Relaxed)));
    USED.store(word, Ordering::Release);
}

/// Core 0's command to `core`.
pub fn command(core: usize) -> CoreCommand {
    // SAFETY: the address of core 0's copy, which lives as long as the machine; only atomics touch
    // it.
    let commands = instance::remote(0, &COMMANDS).map(|commands| unsafe { &*commands });
    let Some([run, plan]) = commands.and_then(|commands| commands.get(core)) else { return CoreCommand::Halt(0) };
    match State::decode(run.load(Ordering::Acquire)) {
        // Published by the run; not changed while it lasts.
        State::Running(run) => CoreCommand::Run(run, PhysAddr(plan.load(Ordering::Relaxed))),
        State::Halted(run) => CoreCommand::Halt(run),
        State::Never => CoreCommand::Halt(0),
    }
}

/// Core 0: writes the command to `core`, which it wakes or starts next.
pub fn send(core: usize, next: CoreCommand) {
    let Some([run, plan]) = COMMANDS.get(core) else { return };
    assert!(command(core).may_become(next), "a command does not follow from the one before");
    match next {
        CoreCommand::Run(number, address) => {
            plan.store(address.0, Ordering::Relaxed);
            run.store(word(number, true), Ordering::Release);
        }
        CoreCommand::Halt(number) => run.store(word(number, false), Ordering::Release),
    }
}

/// Core 0: starts a core whose kernel never ran.
pub fn start(core: usize) {
    // `PcoreAlloc` checked that it is another core of this machine.
    let _ = cores::start_core(core);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::machine::{Played, take_interrupts};

    #[test]
    fn time_is_counted_while_programs_run() {
        let used = Used::NONE.begin(5000);
        assert_eq!((Used::NONE.total_ns(9), used.total_ns(5000), used.total_ns(5300)), (0, 0, 300));
        assert_eq!((used.begin(6000), used.total_ns(4999)), (used, 0));
        let used = used.end(5300);
        assert_eq!((used.total_ns(9000), used.end(9000)), (300, used));
        assert_eq!(used.begin(9000).begin(9500).end(10_000).total_ns(20_000), 1300);
        assert_eq!(used.begin(9000).total_ns(1), 0);
    }

    #[test]
    fn a_state_follows_from_the_one_before() {
        let all = [State::Never, State::Running(1), State::Halted(1), State::Running(2), State::Halted(2)];
        let follows = all.map(|from| all.map(|to| from.may_become(to)));
        assert_eq!(
            follows,
            [
                [false, true, true, true, true],
                [false, false, true, false, false],
                [false, true, true, true, true],
                [false, false, false, false, true],
                [false, true, true, true, true],
            ]
        );
    }

    #[test]
    fn an_order_follows_from_the_one_before() {
        let run = |run| CoreCommand::Run(run, PhysAddr(0x1000));
        let all = [CoreCommand::Halt(1), run(1), CoreCommand::Halt(2), run(2)];
        let follows = all.map(|from| all.map(|to| from.may_become(to)));
        assert_eq!(
            follows,
            [
                [false, true, false, true],
                [true, true, false, true],
                [false, true, false, true],
                [false, true, true, true],
            ]
        );
    }

    #[test]
    fn words_say_what_was_meant_and_garbage_is_a_core_that_never_ran() {
        for state in [State::Never, State::Running(0), State::Running(7), State::Halted(u32::MAX >> 1)] {
            assert_eq!(State::decode(state.encode()), state);
        }
        for garbage in [0, 1, u64::MAX, 0x5045_4c42_0000_0001, 0x7fff_ffff] {
            assert_eq!(State::decode(garbage), State::Never);
        }
        assert_eq!(State::Halted(u32::MAX >> 1).next_run(), 0);
    }

    /// What core 1 has in its copy of a word.
    fn theirs(word: &'static AtomicU64) -> &'static AtomicU64 {
        // SAFETY: memory that the test's machine plays, which only atomics touch.
        unsafe { &*instance::remote(1, word).unwrap() }
    }

    #[test]
    fn a_state_is_what_its_core_said_last() {
        let _machine = Played::of_cores(2, &raw const STATE);
        let running = State::Running(3);
        assert_eq!([0, 1, 2].map(state), [State::Never; 3]);
        theirs(&USED).store(Used::NONE.begin(100).0, Ordering::Relaxed);
        assert_eq!((used_ns(1, 500), used_ns(2, 500)), (0, 0), "what was there before it ran is nothing");
        theirs(&STATE.0).store(running.encode(), Ordering::Relaxed);
        assert_eq!([0, 1].map(state), [State::Never, running]);
        assert_eq!((used_ns(1, 500), used_ns(0, 500)), (400, 0));
        set_state(State::Running(1));
        set_used(|used| used.begin(200));
        assert_eq!(([0, 1].map(state), used_ns(0, 500)), ([State::Running(1), running], 300));
        set_used(|used| used.end(600));
        set_state(State::Halted(1));
        assert_eq!((state(0), used_ns(0, 900), used_ns(1, 900)), (State::Halted(1), 400, 800));
        STATE.0.store(0, Ordering::Relaxed);
        USED.store(0, Ordering::Relaxed);
    }

    #[test]
    fn a_command_stays_until_the_next() {
        let _machine = Played::of_cores(2, &raw const STATE);
        assert_eq!([1, 2, CORES_MAX].map(command), [CoreCommand::Halt(0); 3]);
        send(1, CoreCommand::Run(1, PhysAddr(0x5000)));
        send(2, CoreCommand::Run(7, PhysAddr(0x6000)));
        assert_eq!([1, 2].map(command), [CoreCommand::Run(1, PhysAddr(0x5000)), CoreCommand::Run(7, PhysAddr(0x6000))]);
        send(1, CoreCommand::Halt(1));
        assert_eq!([1, 2].map(command), [CoreCommand::Halt(1), CoreCommand::Run(7, PhysAddr(0x6000))]);
        send(CORES_MAX, CoreCommand::Halt(1));
        COMMANDS.iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    #[test]
    fn a_core_is_told_to_start_once_more_if_it_was_before() {
        let _machine = Played::of_cores(3, &raw const STATE);
        let startup = 6 << 8 | 1 << 14;
        let kinds =
            |sent: Vec<(u32, u32)>| sent.iter().map(|(core, command)| (*core, command & !0xff)).collect::<Vec<_>>();
        start(1);
        assert_eq!(kinds(take_interrupts()).last(), Some(&(1, startup)));
        start(1);
        assert_eq!(kinds(take_interrupts()), [(1, 5 << 8 | 1 << 14), (1, startup)]);
        [0, 3].into_iter().for_each(start);
        assert_eq!(take_interrupts(), [], "this core, and one that is not there");
    }
}
