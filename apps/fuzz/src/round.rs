//! Rounds: all cores begin together, make their calls, take everything back, and count what is
//! left.

use alloc::format;
use alloc::string::String;

use abi::{Error, Handle, ObjectType};
use fuzz::Random;
use runtime::Start;

use crate::barrier::Barrier;
use crate::neighbour::{COMPONENT, LooksClient, lowest_slot};
use crate::secret::Finder;
use crate::target::{Ledger, Target};
use crate::test_objects::TestObjects;
use crate::{Failure, require, word};

/// Words of the command line, and what holds without them.
const SEED: (&str, u64) = ("fuzz.seed", 1);
const CALLS: (&str, u64) = ("fuzz.calls", 100_000);
/// Steps of a round, and of the first, in which stack, heap and what components keep for good
/// grow: 2,000 were not enough.
const STEPS: u64 = 20_000;
const WARM_UP_STEPS: u64 = 6000;
/// The first rounds, in which everything wild is tried once, and a share is filled: in one more
/// than is judged, since that, too, has stack and heap grow for good.
const THOROUGH_ROUNDS: u64 = 2;
/// Between two looks at the neighbour, and between two looks of ours at what came for us.
const LOOK_STEPS: u64 = 1000;
const REST_STEPS: u64 = 100;
/// Others on the core may have a page for a moment: a count is taken again so often, so long apart.
const COUNTS_MAX: u32 = 50;
const AGAIN_NS: u64 = 2_000_000;
const TYPES: usize = ObjectType::ALL.len();

/// What a core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stock {
    free_pages: u64,
    own_pages: u64,
    objects: [u64; TYPES],
    lowest_slot: u64,
}

impl Stock {
    fn count() -> Result<Stock, Error> {
        let (_, own_pages, free_pages) = sys::ram_stat(Handle::SELF_RAM)?;
        let mut objects = [0; TYPES];
        for (count, (object_type, _)) in objects.iter_mut().zip(ObjectType::ALL) {
            *count = sys::object_count(object_type)?;
        }
        Ok(Stock { free_pages, own_pages, objects, lowest_slot: lowest_slot()? })
    }
}

struct Fuzzer {
    start: Start,
    barrier: Barrier,
    neighbour: LooksClient,
    seed: u64,
    ledger: Ledger,
    looks: u64,
}

/// All rounds of this core, and what came of them.
pub async fn all(start: &Start) -> Result<(), Failure> {
    let core = start.core();
    let of = |(name, default): (&str, u64)| word(start, name).unwrap_or(default);
    let (seed, calls) = (of(SEED), of(CALLS));
    let neighbour = start
        .client::<LooksClient>(&format!("{COMPONENT}-{core}"))
        .map_err(|error| Failure(format!("no neighbour: {error:?}")))?;
    let (barrier, ledger) = (Barrier::new(start)?, Ledger::new());
    let mut fuzzer = Fuzzer { start: start.clone(), barrier, neighbour, seed, ledger, looks: 0 };
    runtime::log!("core {core} seed {seed}: {calls} calls");
    fuzzer.round(0, WARM_UP_STEPS).await?;
    let before = Stock::count()?;
    // All cores have as many, since they meet in each.
    let rounds = calls.div_ceil(STEPS).max(1);
    for round in 1..=rounds {
        fuzzer.round(round, calls.div_ceil(rounds)).await?;
        fuzzer.compare(before).await.map_err(|Failure(why)| Failure(format!("after round {round}: {why}")))?;
        let (all, succeeded) = (fuzzer.ledger.tally.all(), fuzzer.ledger.tally.succeeded());
        runtime::log!("core {core} round {round} of {rounds}: {all} calls, {succeeded} not refused");
    }
    fuzzer.tell();
    Ok(())
}

impl Fuzzer {
    /// One round, from nothing to nothing.
    async fn round(&mut self, round: u64, steps: u64) -> Result<(), Failure> {
        self.barrier.all("a round").await?;
        let test_objects = TestObjects::new(&self.start, &mut self.barrier).await?;
        let seed = self.seed.wrapping_mul(1 << 20) + (round << 8) + u64::from(self.start.core());
        let in_round = |Failure(why): Failure| Failure(format!("round {round}: {why}"));
        self.steps(&test_objects, Random::new(seed), round, steps).await.map_err(in_round)?;
        self.barrier.all("the calls of a round").await?;
        test_objects.check()?;
        test_objects.end()?;
        self.barrier.all("the end of a round").await
    }

    async fn steps(
        &mut self,
        test_objects: &TestObjects,
        random: Random,
        round: u64,
        steps: u64,
    ) -> Result<(), Failure> {
        let mut target = Target::new(test_objects, &mut self.ledger, random, Finder::from_seed(self.seed));
        if round < THOROUGH_ROUNDS {
            target.all_wild()?;
            target.flood()?;
        }
        let mut next_look = 0;
        for step in 0..steps {
            target.step()?;
            if step % REST_STEPS == 0 {
                runtime::sleep(1).await;
            }
            if step >= next_look {
                next_look += LOOK_STEPS;
                let looked = self.neighbour.look(self.seed).await;
                looked.map_err(|error| Failure(format!("the neighbour is hurt: {error:?}")))?;
                self.looks += 1;
            }
        }
        Ok(())
    }

    /// Nothing may be missing since then.
    async fn compare(&mut self, before: Stock) -> Result<(), Failure> {
        let mut now = Stock::count()?;
        for _ in 0..COUNTS_MAX {
            if now == before {
                break;
            }
            runtime::sleep(AGAIN_NS).await;
            now = Stock::count()?;
        }
        // Nobody begins anew before all have counted.
        self.barrier.all("the count").await?;
        require!(now == before, "there were {before:?}, and are {now:?}");
        Ok(())
    }

    fn tell(&self) {
        let core = self.start.core();
        let Ledger { tally, scripted_domains, deaths, wild, fresh, words } = &self.ledger;
        tally.calls().for_each(|(name, made, succeeded)| runtime::log!("core {core} call {name} {made} {succeeded}"));
        tally.errors().for_each(|(name, count)| runtime::log!("core {core} error {name} {count}"));
        let causes = ["given up", "exit", "killed", "exception", "Linux call", "no memory", "revoked"];
        let ends: String = causes.iter().zip(deaths).map(|(cause, count)| format!(", {count} {cause}")).collect();
        runtime::log!("core {core} scripted domains {scripted_domains}{ends}; {wild} wild");
        runtime::log!(
            "core {core} {fresh} fresh pages were zero, no secret in {words} words, {} looks of the neighbour",
            self.looks
        );
        runtime::log!("core {core} done: {} calls, {} not refused", tally.all(), tally.succeeded());
    }
}
