//! Seeded runs: the protocols hold, a seed is repeatable, and each step left out is missed.
//!
//! `PELAGO_SIM_SEEDS` sets how many seeds the first test runs (200 without it).

#![forbid(unsafe_code)]

use abi::{ObjectType, Rights};
use capability::{Call, Protocol, Refusal, RequestId, Slot, Sound};
use sim::{Action, Cluster, Occurrence, Options, run, scenario};

#[test]
fn many_seeds_hold() {
    let seeds =
        std::env::var("PELAGO_SIM_SEEDS").ok().map_or(200, |text| text.parse().expect("PELAGO_SIM_SEEDS is a number"));
    let mut done = 0;
    for seed in 0..seeds {
        done += run::<Sound>(&Options::new(seed, 2 + (seed % 7) as u16))
            .unwrap_or_else(|failure| panic!("\n{failure}"))
            .done;
    }
    assert!(done > 20 * seeds, "hardly anything was tried: {done} calls in {seeds} seeds");
}

#[test]
fn a_hundred_nodes_hold() {
    let options = Options { calls: 300, deaths: 3, ..Options::new(7, 100) };
    run::<Sound>(&options).unwrap_or_else(|failure| panic!("\n{failure}"));
}

#[test]
fn a_seed_is_one_run() {
    for seed in [3, 4] {
        let report = || run::<Sound>(&Options::new(seed, 5)).expect("holds");
        assert_eq!(report(), report());
    }
    let hash = |seed| run::<Sound>(&Options::new(seed, 5)).expect("holds").hash;
    assert_ne!(hash(3), hash(4));
}

#[test]
fn a_failure_says_how_to_see_it_again() {
    let failure = (0..SEEDS_TO_FIND).find_map(|seed| run::<NoFlags>(&Options::new(seed, 3)).err()).expect("is found");
    let again = run::<NoFlags>(&failure.options).expect_err("the same options break again");
    assert_eq!(failure.broken, again.broken);
    let kept = failure.options.only.as_ref().expect("calls were left out").len();
    assert!(kept <= 12, "{kept} calls are left of {}", failure.options.calls);
    assert!(failure.to_string().contains("./pelago sim --seed "), "{failure}");
}

/// All cores hold the same Ram and want it at the same time.
#[test]
fn of_many_who_want_the_same_memory_exactly_one_gets_it() {
    for cores in [2_u16, 16, 64] {
        let mut cluster = Cluster::<Sound>::new(cores, 64, 8);
        for core in 1..cores {
            let give = Call::Transfer { slot: Slot(0), to: core, rights: Rights::ALL, moved: false };
            assert_eq!(settle(&mut cluster, vec![Action::Call(0, RequestId(1), give)]), [Ok(())]);
        }
        let want = |core: u16| Call::Retype {
            slot: Slot(u32::from(core > 0)),
            kind: ObjectType::Segment,
            pages: 64,
            count: 1,
        };
        let calls = (0..cores).map(|core| Action::Call(core, RequestId(2), want(core))).collect();
        let answers = settle(&mut cluster, calls);
        assert_eq!(answers.len(), usize::from(cores));
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        assert!(answers.iter().flat_map(|answer| answer.err()).all(|refusal| refusal == Refusal::Busy), "{answers:?}");
    }
}

/// Does what is asked all at once, then delivers in turn until nothing is on its way.
fn settle(cluster: &mut Cluster<Sound>, calls: Vec<Action>) -> Vec<Result<(), Refusal>> {
    let mut occurred: Vec<Occurrence> = calls.iter().flat_map(|call| cluster.act(call, 0)).collect();
    loop {
        let waiting: Vec<_> = cluster.channels().collect();
        if waiting.is_empty() {
            break;
        }
        occurred.extend(waiting.into_iter().flat_map(|(from, to)| cluster.act(&Action::Deliver(from, to), 0)));
    }
    sim::invariants::always(cluster).expect("holds");
    let answers = occurred.into_iter().filter_map(|occurrence| match occurrence {
        Occurrence::Replied(_, _, answer) => Some(answer.map(|_| ())),
        _ => None,
    });
    answers.collect()
}

/// Seeds within which each broken protocol is found.
const SEEDS_TO_FIND: u64 = 400;

macro_rules! broken {
    ($($name:ident without $step:ident,)*) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        struct $name;
        impl Protocol for $name {
            const $step: bool = false;
        }
    )* };
}

broken! {
    NoFlags without FLAGS,
    NoVotes without PREPARES,
    NoDraining without DRAINS,
    NoRefusals without REFUSES_ARRIVALS,
    NoHoldingBack without HOLDS_BACK,
    NoAsking without ASKS_BEFORE_END,
    NoWaiting without AWAITS_INVALIDATION,
    EarlyUnlock without LOCKS_UNTIL_DONE,
}

fn is_found<P: Protocol>() {
    let options = |seed: u64| Options { deaths: 2 + (seed % 3) as u32, ..Options::new(seed, 3 + (seed % 3) as u16) };
    let found = (0..SEEDS_TO_FIND).find_map(|seed| Some((seed, scenario::once::<P>(&options(seed)).err()?)));
    let (seed, failure) = found.unwrap_or_else(|| panic!("{SEEDS_TO_FIND} seeds did not find it"));
    println!("{}: seed {seed}: {}", std::any::type_name::<P>(), failure.broken);
}

#[test]
fn remote_flags_left_out_are_missed() {
    is_found::<NoFlags>();
}

#[test]
fn votes_left_out_are_missed() {
    is_found::<NoVotes>();
}

#[test]
fn draining_left_out_is_missed() {
    is_found::<NoDraining>();
}

#[test]
fn arrivals_under_a_lock_are_noticed() {
    is_found::<NoRefusals>();
}

#[test]
fn messages_from_a_later_view_are_noticed() {
    is_found::<NoHoldingBack>();
}

#[test]
fn an_object_forgotten_while_named_is_noticed() {
    is_found::<NoAsking>();
}

#[test]
fn an_invalidation_answered_too_early_is_noticed() {
    is_found::<NoWaiting>();
}

#[test]
fn memory_unlocked_before_all_have_revoked_is_noticed() {
    is_found::<EarlyUnlock>();
}
