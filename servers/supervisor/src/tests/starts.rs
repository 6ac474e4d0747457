//! How components are started: the first time, after a restart of the supervisor, and when
//! something is missing.

use super::*;

/// Long enough for a component to be found out that stands still.
const STILL_NS: u64 = 3 * STEP_LIMIT_NS;

/// Nothing of it runs, as when the machine begins.
fn nothing_runs() -> Rc<Fake> {
    let fake = Rc::new(Fake::default());
    fake.gone.borrow_mut().extend(NAMES.map(String::from));
    fake
}

/// Waits until that generation was made, and has it serve so much later.
async fn made_and_serves(fake: &Fake, name: &str, generation: u64, after_ns: u64) {
    made(fake, name, generation).await;
    runtime::sleep(after_ns).await;
    fake.serves(domain_of(NAMES.iter().position(|known| *known == name).unwrap() as u32, generation));
}

fn phase(supervisor: &Supervisor, name: &str) -> Option<Phase> {
    supervisor.with(name, |entry| entry.phase)
}

/// Spawn makes no Linux domain before, and nobody is answered.
#[test]
fn one_is_started_after_the_other_and_all_is_ready_once_the_last_serves() {
    let fake = nothing_runs();
    let lines = with(&fake, &description(Restart::Never, &[]), true, async |supervisor| {
        made_and_serves(&fake, "near", 1, PROMPT_NS).await;
        made(&fake, "far", 1).await;
        assert!(runtime::timeout(PROMPT_NS, supervisor.all_started()).await.is_err());
        assert!(!fake.is_ready.get());
        fake.serves(domain_of(1, 1));
        assert!(runtime::timeout(PROMPT_NS, supervisor.all_started()).await.is_ok());
        assert_eq!(phase(&supervisor, "near"), Some(Phase::Serving));
        runtime::sleep(PROMPT_NS).await;
        assert!(fake.is_ready.get());
        assert!(fake.made.borrow().iter().is_sorted_by_key(|(.., when_ns)| *when_ns));
    });
    assert_eq!(lines, [] as [&str; 0]);
}

/// What a machine cannot be without is `near`, here.
#[test]
fn the_machine_ends_at_its_start_without_what_it_cannot_be_without() {
    for (restart, is_first, ends) in
        [(Restart::Never, true, true), (Restart::Always, true, false), (Restart::Never, false, false)]
    {
        let fake = nothing_runs();
        let lines = with(&fake, &description(restart, &[]), is_first, async |supervisor| {
            // It never serves, and the other does.
            made(&fake, "near", 1).await;
            made_and_serves(&fake, "far", 1, 0).await;
            let started = runtime::timeout(STILL_NS, supervisor.all_started()).await;
            assert_eq!(started.is_err(), ends);
            runtime::sleep(PROMPT_NS).await;
            // A successor ends what stands still, and by that death the machine.
            assert_eq!(fake.off.take(), if restart == Restart::Never { &[70][..] } else { &[] });
            assert_eq!(fake.is_ready.get(), !ends);
        });
        assert!(lines.iter().any(|line| line == "not serving: near"), "{lines:?}");
        let is_incomplete = lines.iter().any(|line| line == "the system is not complete: the machine ends");
        assert_eq!(is_incomplete, ends, "{lines:?}");
    }
}

/// At the first start it is left for who looks into it.
#[test]
fn one_that_stands_still_is_ended_by_a_supervisor_that_was_restarted_only() {
    for is_first in [true, false] {
        let fake = nothing_runs();
        with(&fake, &description(Restart::Always, &[]), is_first, async |supervisor| {
            made(&fake, "near", 1).await;
            made_and_serves(&fake, "far", 1, 0).await;
            supervisor.all_started().await;
            runtime::sleep(PROMPT_NS).await;
            let expected: &[_] = if is_first { &[] } else { &[(domain_of(0, 1), STALLED)] };
            assert_eq!(fake.ended.take(), expected);
            assert_eq!(generations(&fake, "near"), if is_first { &[1][..] } else { &[1, 2] });
        });
    }
}

/// The others do not wait for it.
#[test]
fn one_whose_first_start_is_refused_is_started_later() {
    for serves in [true, false] {
        let fake = nothing_runs();
        fake.refusals.set(1);
        fake.refusal.set(Some(SpawnError::NoMemory));
        let lines = with(&fake, &description(Restart::Always, &[]), true, async |supervisor| {
            made_and_serves(&fake, "far", 1, 0).await;
            assert!(runtime::timeout(PROMPT_NS, supervisor.all_started()).await.is_ok());
            assert_eq!(generations(&fake, "near"), [], "it is too early");
            if serves {
                made_and_serves(&fake, "near", 1, PROMPT_NS).await;
            } else {
                made(&fake, "near", 1).await;
            }
            runtime::sleep(STILL_NS).await;
            let ended = fake.ended.take();
            if serves {
                assert_eq!((ended, generations(&fake, "near")), (vec![], vec![1]));
                assert_eq!(phase(&supervisor, "near"), Some(Phase::Serving));
            } else {
                assert_eq!(ended[0], (domain_of(0, 1), STALLED));
                assert!(generations(&fake, "near").starts_with(&[1, 2]));
            }
        });
        let refusal = "near does not start: Server(NoMemory); tried again in 100 ms";
        assert!(lines.iter().any(|line| line == refusal), "{lines:?}");
        assert!(lines.iter().any(|line| line == "not serving: near"), "{lines:?}");
    }
}

/// A predecessor had asked spawn for it and ended before it heard that.
#[test]
fn what_spawn_has_made_already_is_not_asked_for_again() {
    for is_there in [true, false] {
        let fake = Rc::new(Fake::default());
        fake.gone.borrow_mut().push("near".into());
        fake.refusals.set(1);
        fake.refusal.set(Some(SpawnError::Busy));
        fake.runs_refused.set(is_there);
        with_supervisor(&fake, async |supervisor| {
            supervisor.all_started().await;
            runtime::sleep(STILL_NS / 3).await;
            // What is there was found serving; what is not is made once spawn refuses no more.
            let expected = if is_there { (&[][..], Phase::Serving) } else { (&[1][..], Phase::Starting) };
            assert_eq!((&generations(&fake, "near")[..], phase(&supervisor, "near").unwrap()), expected);
        });
    }
}

/// It would be refused for ever.
#[test]
fn one_of_whose_cores_the_machine_has_none_is_given_up() {
    let fake = Rc::new(Fake::default());
    let nowhere = component("nowhere", Placement::Each([7].into()), Restart::Always);
    let lines = with(&fake, &description(Restart::Always, &[nowhere]), false, async |supervisor| {
        assert!(runtime::timeout(PROMPT_NS, supervisor.all_started()).await.is_ok());
        assert_eq!(phase(&supervisor, "nowhere"), Some(Phase::GivenUp));
        assert!(!supervisor.wait("nowhere", None).await);
    });
    assert_eq!(lines, ["nowhere does not start: Server(NoCore)", "not serving: nowhere"]);
}

/// What it says goes for the generation that runs, although spawn's answer is still to come.
#[test]
fn one_may_serve_before_the_answer_to_its_start_comes() {
    for (core, name) in (0..).zip(NAMES) {
        let fake = Rc::new(Fake::default());
        with_supervisor(&fake, async |supervisor| {
            supervisor.all_started().await;
            fake.answers_after_ns.set(10 * PROMPT_NS);
            fake.gone.borrow_mut().push(name.into());
            fake.events().died(name.into(), 1, false, killed(domain_of(core, 1))).unwrap();
            made(&fake, name, 2).await;
            assert_eq!(phase(&supervisor, name), Some(Phase::Starting));
            fake.serves(domain_of(core, 2));
            runtime::sleep(PROMPT_NS).await;
            assert_eq!(phase(&supervisor, name), Some(Phase::Serving));
            let found = supervisor.with(name, |entry| (entry.generation, entry.dispatchers[0].domain));
            assert_eq!(found, Some((2, Some(domain_of(core, 2)))));
            // The monitor tells of another domain than that.
            fake.serves(domain_of(core, 0));
            runtime::sleep(PROMPT_NS).await;
            let found = supervisor.with(name, |entry| (entry.generation, entry.dispatchers[0].domain));
            assert_eq!(found, Some((2, Some(domain_of(core, 2)))));
        });
    }
}

/// The monitor does not know it any more when it could be asked.
#[test]
fn one_that_serves_and_dies_at_once_has_served() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        kill_near(&fake, 1);
        made(&fake, "near", 2).await;
        runtime::sleep(PROMPT_NS).await;
        fake.serves(domain_of(0, 2));
        let killed_ns = kill_near(&fake, 2);
        assert!(made(&fake, "near", 3).await - killed_ns < PROMPT_NS / 10);
    });
}

#[test]
fn a_wait_is_told_if_there_is_one_and_once_a_second() {
    let fake = Rc::new(Fake::default());
    let lines = with(&fake, &description(Restart::Always, &[]), false, async |supervisor| {
        supervisor.all_started().await;
        for generation in 1..=4 {
            kill_near(&fake, generation);
            made(&fake, "near", generation + 1).await;
        }
        runtime::sleep(1_500_000_000).await;
        // It served for long, and is back after a while.
        fake.serves(domain_of(0, 5));
        runtime::sleep(1_000_000_000).await;
        kill_near(&fake, 5);
        made_and_serves(&fake, "near", 6, 2 * PROMPT_NS).await;
        runtime::sleep(1_000_000_000).await;
    });
    let [first, last, served, restarted] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(first, "near ended (killed); tried again in 10 ms");
    assert_eq!(last, "near ended (killed); tried again in 40 ms (and 1 more in this second)");
    assert!(served.starts_with("near restarted, generation 5, killed, "), "{served}");
    let us = restarted.strip_prefix("near restarted, generation 6, killed, ").unwrap().strip_suffix(" us").unwrap();
    assert!((100_000..150_000).contains(&us.parse().unwrap()), "{us}");
}

/// Each of its dispatchers is known as soon as spawn made them.
#[test]
fn the_dispatchers_of_a_program_are_asked_for_until_all_are_known() {
    let fake = Rc::new(Fake::default());
    with(&fake, &with_wide(), false, async |supervisor| {
        made(&fake, WIDE, 1).await;
        runtime::sleep(PROMPT_NS).await;
        assert_eq!(fake.asked_from.take(), [0, 1], "of what is no program there is nothing to ask");
        let domains = |entry: &mut Entry| entry.dispatchers.iter().map(|one| one.domain).collect::<Vec<_>>();
        let all = [0, 1].map(|core| dispatcher(core, 1).domain);
        assert_eq!(supervisor.with(WIDE, domains), Some(all.map(Some).to_vec()));
        all.iter().for_each(|domain| fake.serves(*domain));
        supervisor.all_started().await;
        assert_eq!(phase(&supervisor, WIDE), Some(Phase::Serving));
        kill_near(&fake, 1);
        made(&fake, "near", 2).await;
        runtime::sleep(PROMPT_NS).await;
        assert_eq!(fake.asked_from.take(), []);
    });
}

/// Spawn tells of that, once the last dispatcher is gone.
#[test]
fn a_program_is_restarted_when_spawn_tells_its_end() {
    let fake = Rc::new(Fake::default());
    with(&fake, &with_wide(), false, async |supervisor| {
        made(&fake, WIDE, 1).await;
        let all = [0, 1].map(|core| dispatcher(core, 1).domain);
        runtime::sleep(PROMPT_NS).await;
        all.iter().for_each(|domain| fake.serves(*domain));
        supervisor.all_started().await;
        fake.lose(all[1], killed(all[1]));
        runtime::sleep(PROMPT_NS).await;
        assert_eq!((phase(&supervisor, WIDE), generations(&fake, WIDE)), (Some(Phase::Starting), vec![1]));
        fake.lose(all[0], killed(all[1]));
        runtime::sleep(PROMPT_NS).await;
        assert_eq!(generations(&fake, WIDE), [1, 2]);
    });
}

#[test]
fn a_program_that_progresses_and_never_serves_has_more_steps_for_each_dispatcher() {
    let fake = Rc::new(Fake::default());
    fake.progresses.set(true);
    with(&fake, &with_wide(), false, async |_| {
        let made_ns = made(&fake, WIDE, 1).await;
        let ended = runtime::timeout(100 * STEP_LIMIT_NS, made(&fake, WIDE, 2)).await;
        let steps = (ended.expect("it is given up at last") - made_ns) / STEP_LIMIT_NS;
        assert_eq!(steps as usize, STEPS_MAX + 2 * STEPS_PER_DISPATCHER);
        assert_eq!(fake.ended.take(), [0, 1].map(|core| (dispatcher(core, 1).domain, STALLED)));
    });
}
