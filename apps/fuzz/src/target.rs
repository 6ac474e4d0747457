//! A scripted domain under fire: one step is a call, a leap into what no program may do, or a look
//! at memory it was given.

use abi::{Call, DeathCause, DomainState, Error, Handle, ObjectType, RangeEntry, Rights, layout};
use fuzz::{Made, Pool, Random, Surroundings, Tally};
use worker::{Ends, SHARED, ScriptedDomain, WILD};

use crate::secret::{Finder, WORDS};
use crate::test_objects::TestObjects;
use crate::{Failure, require};

const PAGE: u64 = abi::PAGE_BYTES;
/// How often, in steps, a scripted domain tries what is no call; takes memory and looks whether it
/// is zero; looks through all it has mapped.
const WILD_IN: u64 = 900;
const FRESH_IN: u64 = 250;
const SWEEP_IN: u64 = 4000;
/// Time a scripted domain has for one thing before it is looked at more closely. Limits of calls
/// that wait are far shorter.
const PATIENCE_NS: u64 = 500_000;
/// It is then let run by its own time, in so many pieces of such a length. Where the core went idle
/// meanwhile, it waits for what never comes.
const PIECES: u32 = 60;
const PIECE_NS: u64 = 200_000;
/// Scripted domains that may have no turn in a row.
const TRIES: u32 = 100;
/// Where fresh memory is shown. Calls at random do not map there.
const FRESH_AT: u64 = 0x5000_0000;
const FRESH_PAGES_MAX: u64 = 12;
/// Mappings and pages of one that a sweep looks at.
const SWEEP_MAPPINGS: u32 = 64;
const SWEEP_PAGES: u64 = 16;
/// Addresses that only the kernel has.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Calls whose results are words that programs chose.
const ECHOES: [Call; 6] =
    [Call::RamStat, Call::Wait, Call::PortalCall, Call::PortalReplyWait, Call::ObjectName, Call::RangeGet];
/// Calls that want rights to the core, or to a device's registers, which scripted domains have not.
const OF_CORES: [Call; 26] = [
    Call::RamTurns,
    Call::ScheduleGang,
    Call::PowerOff,
    Call::ConsoleWrite,
    Call::TraceRead,
    Call::RamCarve,
    Call::RamAdd,
    Call::SegmentImport,
    Call::PcoreThrottle,
    Call::WakeSlotAlloc,
    Call::WakeSlotImport,
    Call::WakeSlotFree,
    Call::PcoreRun,
    Call::PcoreAlloc,
    Call::PcoreHalt,
    Call::PcoreWatch,
    Call::PcoreAddDevice,
    Call::PcoreDeviceStat,
    Call::PcoreUse,
    Call::DeviceAlloc,
    Call::DeviceWindow,
    Call::DeviceConfRead,
    Call::DevicePortRead,
    Call::DevicePortWrite,
    Call::SharePool,
    Call::ShareImport,
];
/// More copies than fill a scripted domain's share, though some in a row are refused as too deep.
const FLOOD: u64 = 2 * layout::SHARE_SLOTS_MAX;

/// What was seen, over all rounds.
pub struct Ledger {
    /// Calls and how they ended.
    pub tally: Tally,
    /// Scripted domains made.
    pub scripted_domains: u64,
    /// Ends of scripted domains, by `DeathCause`; 0: it lived, and its context had ended or did not
    /// come back.
    pub deaths: [u64; 7],
    /// Tries of what no program may do.
    pub wild: u64,
    /// Fresh pages looked at.
    pub fresh: u64,
    /// Words looked at in which the neighbour's secret might have been.
    pub words: u64,
}

impl Ledger {
    /// Nothing yet.
    pub const fn new() -> Ledger {
        Ledger { tally: Tally::new(), scripted_domains: 0, deaths: [0; 7], wild: 0, fresh: 0, words: 0 }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger::new()
    }
}

/// How a call of the scripted domain's ended.
enum Ended {
    Back(Result<[u64; 3], Error>),
    /// Its context, or all of it, ended.
    Gone,
    /// It waits for what never comes.
    Stuck,
}

struct Around<'p>(&'p Pool);

impl Surroundings for Around<'_> {
    fn handle(&mut self, random: &mut Random, wanted: Option<ObjectType>) -> u64 {
        self.0.handle(random, wanted)
    }

    fn id(&mut self, random: &mut Random) -> u64 {
        self.0.id(random)
    }

    fn named(&mut self, random: &mut Random) -> u64 {
        self.0.named(random)
    }

    fn now_ns(&mut self) -> u64 {
        runtime::now_ns()
    }

    fn entry(&mut self, random: &mut Random) -> [u64; 2] {
        let wrong = random.one(&[0, layout::HEAP, layout::USER_END - PAGE]);
        [random.one(&[ScriptedDomain::entry(), ScriptedDomain::entry(), ScriptedDomain::entry(), wrong]), SHARED]
    }

    fn mapped(&mut self, random: &mut Random) -> Option<[u64; 3]> {
        self.0.mapped(random)
    }

    fn pointer(&mut self, random: &mut Random) -> u64 {
        // Past the words by which it is asked; at its end; where something may be mapped.
        random.one(&[SHARED + PAGE / 2, SHARED + PAGE - 8, layout::HEAP])
    }

    fn is_rare(&self, call: Call) -> bool {
        fuzz::RARE.contains(&call) || OF_CORES.contains(&call)
    }

    fn is_left_out(&self, _: Call) -> bool {
        false
    }
}

/// See the module's head.
pub struct Target<'w> {
    test_objects: &'w TestObjects,
    ledger: &'w mut Ledger,
    random: Random,
    finder: Finder,
    living: Option<(ScriptedDomain, Pool)>,
}

impl<'w> Target<'w> {
    /// Without a scripted domain yet.
    pub fn new(test_objects: &'w TestObjects, ledger: &'w mut Ledger, random: Random, finder: Finder) -> Target<'w> {
        Target { test_objects, ledger, random, finder, living: None }
    }

    /// Calls made so far, in all rounds.
    pub fn calls(&self) -> u64 {
        self.ledger.tally.all()
    }

    /// One step.
    pub fn step(&mut self) -> Result<(), Failure> {
        if self.random.once_in(WILD_IN) {
            return self.wild();
        }
        if self.living.is_none() {
            self.renew()?;
        }
        if self.random.once_in(FRESH_IN) {
            return self.fresh();
        }
        if self.random.once_in(SWEEP_IN) {
            return self.sweep();
        }
        let Some((_, pool)) = &mut self.living else { return Ok(()) };
        let made = match pool.surplus(&mut self.random) {
            Some(handle) => call(Call::CapDrop, [handle, 0, 0, 0, 0, 0]),
            None => fuzz::next(&mut self.random, &mut Around(pool)),
        };
        self.make(&made).map(drop)
    }

    /// Makes one call and looks at what it gave; `None` if it was refused or did not come back.
    fn make(&mut self, made: &Made) -> Result<Option<[u64; 3]>, Failure> {
        let ended = self.ask(made);
        let Some((scripted, pool)) = &mut self.living else { return Ok(None) };
        let known = Call::decode(made.number);
        match ended {
            Ended::Back(result) => {
                self.ledger.tally.count(made.number, Some(result.map(drop)));
                let words = [1, 2, 3].map(|word| scripted.worker.word(word));
                let seen = words.into_iter().chain(scripted.other_registers()).find(|word| self.finder.knows(*word));
                require!(seen.is_none(), "{made:x?} gives a word of the neighbour's secret: {seen:x?}");
                self.ledger.words += 8;
                pool.note(made, result.map(drop));
                let results = match (result, known) {
                    (Ok(results), _) => results,
                    (Err(error), Some(call)) => {
                        let is_listed = call.errors().contains(error);
                        require!(is_listed, "{made:x?} is refused with {error:?}, which its row lacks");
                        return Ok(None);
                    }
                    (Err(_), None) => return Ok(None),
                };
                let is_echo = known.is_none_or(|call| ECHOES.contains(&call));
                let leak = results.iter().find(|word| **word >= KERNEL && !is_echo && !made.words.contains(word));
                require!(leak.is_none(), "{made:x?} gives an address of the kernel: {leak:x?}");
                pool.learn(made, results);
                Ok(Some(results))
            }
            Ended::Gone => {
                let state = self.end()?;
                let cause = DeathCause::decode(state.cause);
                let is_its_own = matches!(
                    (known, cause),
                    (Some(Call::DomainExit), Some(DeathCause::Exit))
                        | (Some(Call::DomainKill), Some(DeathCause::Killed))
                        | (Some(Call::ContextEnd), Some(DeathCause::Alive))
                        | (Some(Call::ContextResume), Some(DeathCause::Exception))
                );
                self.ledger.tally.count(made.number, is_its_own.then_some(Ok(())));
                Ok(None)
            }
            Ended::Stuck => {
                self.ledger.tally.count(made.number, None);
                self.end()?;
                Ok(None)
            }
        }
    }

    fn ask(&self, made: &Made) -> Ended {
        let Some((scripted, _)) = &self.living else { return Ended::Gone };
        loop {
            match scripted.call(made.number, made.words, soon_ns()) {
                Ok(result) if scripted.is_back() => return Ended::Back(result),
                // The call itself answered us; what it gives comes with the next question.
                Ok(_) => {
                    return match scripted.again(soon_ns()) {
                        Ok(()) if scripted.is_back() => Ended::Back(scripted.result()),
                        Ok(()) | Err(Error::Timeout) => Ended::Stuck,
                        Err(_) => Ended::Gone,
                    };
                }
                Err(Error::Timeout) => match let_run(|| scripted.is_back()) {
                    Run::Over => return Ended::Back(scripted.result()),
                    // It was not asked at all.
                    Run::Idle if !scripted.has_begun() => {}
                    Run::Idle | Run::On => return Ended::Stuck,
                },
                Err(_) => return Ended::Gone,
            }
        }
    }

    /// Ends the scripted domain and tells how it stood.
    fn end(&mut self) -> Result<DomainState, Failure> {
        let Some((scripted, _)) = self.living.take() else { return Ok(DomainState::default()) };
        let state = sys::domain_state(scripted.worker.domain)?;
        self.ledger.deaths[(state.cause % 7) as usize] += 1;
        Ok(state)
    }

    fn renew(&mut self) -> Result<(), Failure> {
        self.end()?;
        self.living = Some(self.test_objects.scripted(self.ledger.scripted_domains)?);
        self.ledger.scripted_domains += 1;
        Ok(())
    }

    /// What no program may do, or does to itself: by a scripted domain that is new, or wherever one
    /// stands.
    fn wild(&mut self) -> Result<(), Failure> {
        let number = self.random.below(WILD.len() as u64) as usize;
        if self.random.once_in(3) {
            return self.must_end(number);
        }
        if self.living.is_none() {
            self.renew()?;
        }
        self.ledger.wild += 1;
        let Some((scripted, pool)) = &self.living else { return Ok(()) };
        let address = fuzz::argument(&mut self.random, &mut Around(pool));
        let ended = match self.random.below(4) {
            0 => scripted.load(address, soon_ns()).map(Some),
            1 => scripted.store(address, self.random.any(), soon_ns()).map(|()| None),
            2 => scripted.jump(address, soon_ns()).map(|()| None),
            _ => scripted.go_wild(number, soon_ns()).map(|()| None),
        };
        let is_secret = ended.is_ok_and(|seen| seen.is_some_and(|word| self.finder.knows(word)));
        require!(!is_secret, "a load from {address:#x} gives the secret");
        // If it lives, flags and segments are not what they were.
        self.end().map(drop)
    }

    /// A new scripted domain does what no program may do, and ends as the processor says, or goes
    /// on.
    fn must_end(&mut self, number: usize) -> Result<(), Failure> {
        let (mut run, mut state) = (Run::Idle, DomainState::default());
        for _ in 0..TRIES {
            self.renew()?;
            self.ledger.wild += 1;
            let Some((scripted, _)) = &self.living else { return Ok(()) };
            let domain = scripted.worker.domain;
            let is_dead = || sys::domain_state(domain).is_ok_and(|state| state.cause != DeathCause::Alive as u64);
            let answer = scripted.go_wild(number, soon_ns());
            run = match answer {
                Ok(()) => Run::Idle,
                Err(Error::Timeout) => let_run(is_dead),
                Err(_) => Run::Over,
            };
            state = self.end()?;
            // Else it had no turn in its time, and was not asked at all.
            if answer.is_ok() || !matches!(run, Run::Idle) {
                break;
            }
        }
        let wild = WILD[number];
        let is_right = match run {
            Run::Idle => matches!(wild.ends, Ends::OnOrBy(_)),
            Run::On => matches!(wild.ends, Ends::Never | Ends::ByOrNever(_)),
            Run::Over => ends_as_it_should(wild.ends, &state),
        };
        require!(is_right, "`{}` should end {:?} and is {run:?}: {state:x?}", wild.name, wild.ends);
        Ok(())
    }

    /// All of that, one after another.
    pub fn all_wild(&mut self) -> Result<(), Failure> {
        (0..WILD.len()).try_for_each(|number| self.must_end(number))
    }

    /// Takes memory in one of the ways there are; it must be zero. Then it is written to, so that
    /// the next one who gets it would see that.
    fn fresh(&mut self) -> Result<(), Failure> {
        let pages = 1 + self.random.below(FRESH_PAGES_MAX);
        let Some((_, pool)) = &self.living else { return Ok(()) };
        let other = pool.handle(&mut self.random, Some(ObjectType::Ram));
        let ram = self.random.one(&[Handle::SELF_RAM.0, other]);
        let share = pool.handle(&mut self.random, Some(ObjectType::Share));
        let way = self.random.below(5);
        let alloc = match way {
            0 => call(Call::ShareSegment, [share, pages, 0, 0, self.random.below(2), 0]),
            1 => call(Call::SegmentAlloc, [ram, 1, 0, 0, 0, 0]),
            _ => call(Call::SegmentAlloc, [ram, pages, way - 2, 0, 0, 0]),
        };
        let Some([segment, ..]) = self.make(&alloc)? else { return Ok(()) };
        if way == 1 && self.make(&call(Call::SegmentSetPages, [segment, pages, 0, 0, 0, 0]))?.is_none() {
            return Ok(());
        }
        let both = layout::protection::READ | layout::protection::WRITE;
        let map = call(Call::RangeMap, [Handle::SELF_RANGE.0, FRESH_AT, segment, 0, pages, both]);
        if self.make(&map)?.is_none() {
            return Ok(());
        }
        if let Some([set, secrets]) = self.scan(FRESH_AT, pages)? {
            require!(secrets == 0, "fresh memory ({alloc:x?}) has {secrets} words of the neighbour's secret");
            require!(set == 0, "fresh memory ({alloc:x?}) is not zero: bits {set:#x}");
            self.ledger.fresh += pages;
        }
        for page in 0..pages {
            let Some((scripted, _)) = &self.living else { return Ok(()) };
            let word = FRESH_AT + page * PAGE + self.random.below(WORDS) * 8;
            if scripted.store(word, self.random.any(), soon_ns()).is_err() {
                return self.end().map(drop);
            }
        }
        self.make(&call(Call::RangeUnmap, [Handle::SELF_RANGE.0, FRESH_AT, pages, 0, 0, 0])).map(drop)
    }

    /// Has the scripted domain look at pages of its own; `None` if it did not come back. What is
    /// missing there ended it, rightly.
    fn scan(&mut self, address: u64, pages: u64) -> Result<Option<[u64; 2]>, Failure> {
        let Some((scripted, _)) = &self.living else { return Ok(None) };
        match scripted.scan(address, pages * WORDS, self.finder.inverted(), soon_ns()) {
            Ok(seen) => {
                self.ledger.words += pages * WORDS;
                Ok(Some(seen))
            }
            Err(_) => self.end().map(|_| None),
        }
    }

    /// Looks for the secret in all that the scripted domain has mapped.
    fn sweep(&mut self) -> Result<(), Failure> {
        let mut next = 0;
        for _ in 0..SWEEP_MAPPINGS {
            let Some(words) = self.make(&call(Call::RangeGet, [Handle::SELF_RANGE.0, next, 0, 0, 0, 0]))? else {
                break;
            };
            let entry = RangeEntry::from_words(words);
            next = entry.start + entry.pages * PAGE;
            if entry.is_range || entry.protection & layout::protection::READ == 0 {
                continue;
            }
            if let Some([_, secrets]) = self.scan(entry.start, entry.pages.min(SWEEP_PAGES))? {
                require!(secrets == 0, "{entry:x?} shows {secrets} words of the neighbour's secret");
            }
        }
        Ok(())
    }

    /// Fills a scripted domain's share to the last slot, with copies of copies; what follows is
    /// made without a free slot.
    pub fn flood(&mut self) -> Result<(), Failure> {
        self.renew()?;
        let rights = u64::from(Rights::READ.0);
        let mut from = Handle::SELF_RAM.0;
        for number in 0..FLOOD {
            // Not by `make`: the pool need not know them.
            let made = call(Call::CapCopy, [from, rights, 0, 0, 0, 0]);
            let Ended::Back(result) = self.ask(&made) else { return self.end().map(drop) };
            self.ledger.tally.count(made.number, Some(result.map(drop)));
            match result {
                Err(Error::NoSlot) => return Ok(()),
                Ok([copy, ..]) if number % 64 < 20 => from = copy,
                _ => from = Handle::SELF_RAM.0,
            }
        }
        Err(Failure("a share never gets full".into()))
    }
}

/// How it stands with somebody who had some time to himself.
#[derive(Debug)]
enum Run {
    /// What was waited for has come.
    Over,
    /// The core had nothing to do.
    Idle,
    /// He goes on and on.
    On,
}

/// Sleeps, so that contexts with time of their own run, until something holds.
fn let_run(is_over: impl Fn() -> bool) -> Run {
    let idles = || sys::counter_read(layout::counter::IDLES).unwrap_or(0);
    for _ in 0..PIECES {
        let before = idles();
        // Bits of others are handed on to the executor.
        executor::post(sys::wait(runtime::now_ns() + PIECE_NS).unwrap_or(0));
        if is_over() {
            return Run::Over;
        }
        if idles() != before {
            return Run::Idle;
        }
    }
    Run::On
}

fn soon_ns() -> u64 {
    runtime::now_ns() + PATIENCE_NS
}

fn call(call: Call, words: [u64; 6]) -> Made {
    Made { number: call.number(), words }
}

fn ends_as_it_should(ends: Ends, state: &DomainState) -> bool {
    let by = |vector: u8| state.exception.vector == u64::from(vector);
    let is_right = match ends {
        Ends::By(vector) | Ends::OnOrBy(vector) | Ends::ByOrNever(vector) => by(vector),
        Ends::ByEither(one, other) => by(one) || by(other),
        Ends::Never => false,
    };
    is_right && DeathCause::decode(state.cause) == Some(DeathCause::Exception)
}
