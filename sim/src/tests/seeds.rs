//! Seeded runs: the protocols hold, a seed is repeatable, and each step left out is missed.
//!
//! `PELAGO_SIM_SEEDS` sets how many seeds the first test runs (200 without it).

use crate::{Action, Broken, Cluster, Occurrence, Options, run, scenario, without};
use abi::{ObjectType, Rights};
use capability::{Call, Refusal, RequestId, Slot, Sound, Step};

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
    let (failure, again) = without(Step::Flag, || {
        let failed = |seed| run::<Broken>(&Options::new(seed, 3)).err();
        let failure = (0..SEEDS_TO_FIND).find_map(failed).expect("is found");
        let again = run::<Broken>(&failure.options).expect_err("the same options break again");
        (failure, again)
    });
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
    crate::invariants::always(cluster).expect("holds");
    let answers = occurred.into_iter().filter_map(|occurrence| match occurrence {
        Occurrence::Replied(_, _, answer) => Some(answer.map(|_| ())),
        _ => None,
    });
    answers.collect()
}

/// Seeds within which each broken protocol is found.
const SEEDS_TO_FIND: u64 = 400;

fn is_found(step: Step) {
    let options = |seed: u64| Options { deaths: 2 + (seed % 3) as u32, ..Options::new(seed, 3 + (seed % 3) as u16) };
    let failed = |seed| Some((seed, scenario::once::<Broken>(&options(seed)).err()?));
    let found = without(step, || (0..SEEDS_TO_FIND).find_map(failed));
    let (seed, failure) = found.unwrap_or_else(|| panic!("{SEEDS_TO_FIND} seeds did not find it"));
    println!("without {step:?}: seed {seed}: {}", failure.broken);
}

#[test]
fn remote_flags_left_out_are_missed() {
    is_found(Step::Flag);
}

#[test]
fn votes_left_out_are_missed() {
    is_found(Step::Prepare);
}

#[test]
fn draining_left_out_is_missed() {
    is_found(Step::Drain);
}

#[test]
fn arrivals_under_a_lock_are_noticed() {
    is_found(Step::RefuseArrivals);
}

#[test]
fn messages_from_a_later_view_are_noticed() {
    is_found(Step::HoldBack);
}

#[test]
fn an_object_forgotten_while_named_is_noticed() {
    is_found(Step::AskBeforeEnd);
}

#[test]
fn an_invalidation_answered_too_early_is_noticed() {
    is_found(Step::AwaitInvalidation);
}

#[test]
fn memory_unlocked_before_all_have_revoked_is_noticed() {
    is_found(Step::LockUntilDone);
}
