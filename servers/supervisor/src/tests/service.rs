//! What the console is told, and what it has done.

use channel::CallError;
use contracts::supervisor::{
    Chaos, ComponentLine, DispatcherLine, DispatcherState, Place, Recovery, SupervisorClient, SupervisorError,
    serve_supervisor,
};

use super::*;
use crate::service::Shared;
use crate::watch::RETURN_LIMIT_NS;

const MS: u64 = 1_000_000;
/// How late what was to be may come, in microseconds.
const LATE_US: u64 = PROMPT_NS / 1000;

type Gives<T> = Result<T, CallError<SupervisorError>>;

fn refused<T>(why: SupervisorError) -> Gives<T> {
    Err(CallError::Server(why))
}

/// As [`with`], with a client of the supervisor once all is started.
fn with_client<F: Future<Output = ()>>(
    fake: &Rc<Fake>,
    description: &System,
    test: impl FnOnce(Rc<Supervisor>, SupervisorClient) -> F,
) {
    with(fake, description, false, async |supervisor| {
        let (client, server) = channel::loopback(Layout::default());
        runtime::spawn(serve_supervisor(Rc::new(Shared(supervisor.clone())), server));
        supervisor.all_started().await;
        test(supervisor, SupervisorClient::new(client)).await;
    });
}

fn plain() -> System {
    description(Restart::Always, &[])
}

/// What a task that was begun gives, once it is done.
struct Begun<T>(Rc<RefCell<Option<T>>>);

fn begin<T: 'static>(asked: impl Future<Output = T> + 'static) -> Begun<T> {
    let kept = Rc::new(RefCell::new(None));
    let to = kept.clone();
    runtime::spawn(async move {
        let given = asked.await;
        *to.borrow_mut() = Some(given);
    });
    Begun(kept)
}

impl<T> Begun<T> {
    /// What it gave, if it is done in such a time from now.
    async fn within(&self, limit_ns: u64) -> Option<T> {
        runtime::sleep(limit_ns).await;
        self.0.take()
    }
}

/// Begins to break something.
fn chaos(client: &SupervisorClient, what: Chaos, name: &str) -> Begun<Gives<Recovery>> {
    let (client, name) = (client.clone(), name.to_string());
    begin(async move { client.chaos(what, name).await })
}

fn is_about(us: u64, ms: u64) -> bool {
    (ms * 1000..ms * 1000 + LATE_US).contains(&us)
}

#[test]
fn a_component_has_a_line_with_what_all_its_dispatchers_use() {
    let fake = Rc::new(Fake::default());
    // A program with one dispatcher is one all the same.
    let more = [
        component(WIDE, Placement::Every, Restart::Always),
        component("narrow", Placement::Each([1].into()), Restart::Always),
    ];
    with_client(&fake, &description(Restart::Always, &more), async |supervisor, client| {
        let line = async |index| client.component(index).await.unwrap();
        let near = |generation, last_recovery_us| ComponentLine {
            name: "near".into(),
            place: Place::Core(0),
            generation,
            running: true,
            pages: 1,
            cpu_ns: 1,
            last_recovery_us,
        };
        assert_eq!(line(0).await, Some(near(1, 0)));
        assert_eq!(line(1).await.map(|line| (line.name, line.place)), Some(("far".into(), Place::Core(1))));
        // It stood still, was ended, and its successor runs.
        runtime::sleep(PROMPT_NS).await;
        let generation = *generations(&fake, WIDE).last().unwrap();
        let wide = ComponentLine {
            name: WIDE.into(),
            place: Place::Cores(2),
            generation,
            running: true,
            pages: 3 + 4,
            cpu_ns: 11 + 11,
            last_recovery_us: 0,
        };
        assert_eq!(line(2).await, Some(wide));
        let narrow = line(3).await.unwrap();
        assert_eq!((narrow.place, narrow.running, narrow.pages), (Place::Cores(1), true, 0));
        assert_eq!(line(4).await, None);
        // And after a recovery that took a while.
        kill_near(&fake, 1);
        made(&fake, "near", 2).await;
        runtime::sleep(300 * MS).await;
        fake.serves(domain_of(0, 2));
        runtime::sleep(MS).await;
        let recovery_us = supervisor.with("near", |entry| entry.recovery_ns).unwrap() / 1000;
        assert!(is_about(recovery_us, 300));
        assert_eq!(line(0).await, Some(near(2, recovery_us)));
    });
}

#[test]
fn a_dispatcher_starts_serves_and_ends() {
    let fake = Rc::new(Fake::default());
    with_client(&fake, &plain(), async |_, client| {
        let name = String::from("near");
        let line =
            |state, pages, cpu_ns| Ok(Some(DispatcherLine { name: name.clone(), core: 0, state, pages, cpu_ns }));
        assert_eq!(client.dispatcher(0, 0).await, line(DispatcherState::Serving, 1, 1));
        assert_eq!(client.dispatcher(0, 1).await, Ok(None));
        assert_eq!(client.dispatcher(9, 0).await, Ok(None));
        kill_near(&fake, 1);
        made(&fake, "near", 2).await;
        runtime::sleep(MS).await;
        assert_eq!(client.dispatcher(0, 0).await, line(DispatcherState::Starting, 1, 1));
        // Killed before it served, so its successor waits.
        kill_near(&fake, 2);
        runtime::sleep(MS).await;
        assert_eq!(client.dispatcher(0, 0).await, line(DispatcherState::Ended, 0, 0));
    });
}

/// From the order to the answer: what was asked of the monitor, and how the component came back.
#[test]
fn who_breaks_a_component_is_told_when_the_next_generation_serves() {
    let cases = [
        (Chaos::Kill, FaultKind::Kill(137)),
        (Chaos::Fault, FaultKind::Inject(InjectedFault::Fault)),
        (Chaos::Hang, FaultKind::Inject(InjectedFault::Hang)),
        (Chaos::Block, FaultKind::Inject(InjectedFault::Block)),
        (Chaos::Worker, FaultKind::Inject(InjectedFault::Worker)),
    ];
    for (what, how) in cases {
        let hangs = !matches!(what, Chaos::Kill | Chaos::Fault);
        let fake = Rc::new(Fake::default());
        with_client(&fake, &plain(), async |_, client| {
            let asked = chaos(&client, what, "near");
            assert_eq!(asked.within(200 * MS).await, None, "it serves still");
            assert_eq!(fake.injected.take(), [(0, domain_of(0, 1), how, 0)]);
            if hangs {
                fake.events().stalled(domain_of(0, 1)).unwrap();
                runtime::sleep(100 * MS).await;
            }
            kill_near(&fake, 1);
            made(&fake, "near", 2).await;
            assert_eq!(asked.within(300 * MS).await, None, "it does not serve yet");
            fake.serves(domain_of(0, 2));
            let Some(Ok(recovery)) = asked.within(MS).await else { panic!("{what:?}") };
            assert_eq!(recovery.generation, 2);
            let (down_ms, noticed_ms) = if hangs { (400, 200) } else { (300, 0) };
            assert!(is_about(recovery.recovery_us, down_ms), "{what:?}: {recovery:?}");
            assert!(is_about(recovery.noticed_us, noticed_ms) && (hangs || recovery.noticed_us == 0), "{recovery:?}");
        });
    }
}

#[test]
fn one_that_does_not_come_back_is_given_up_by_who_broke_it() {
    let fake = Rc::new(Fake::default());
    with_client(&fake, &plain(), async |_, client| {
        let asked = chaos(&client, Chaos::Kill, "far");
        assert_eq!(asked.within(RETURN_LIMIT_NS - PROMPT_NS).await, None);
        assert_eq!(asked.within(2 * PROMPT_NS).await, Some(refused(SupervisorError::TimedOut)));
    });
}

/// What is broken later hangs from then on, and not from the order.
#[test]
fn what_is_broken_later_is_asked_for_at_once_and_its_hang_counts_from_then() {
    let fake = Rc::new(Fake::default());
    with_client(&fake, &plain(), async |supervisor, client| {
        let asked_ns = now_ns();
        assert_eq!(client.chaos_later(Chaos::Hang, "near".into(), 50 * MS).await, Ok(()));
        assert_eq!(client.chaos_later(Chaos::Fault, "monitor-1".into(), 60 * MS).await, Ok(()));
        assert!(now_ns() - asked_ns < MS);
        let hang = FaultKind::Inject(InjectedFault::Hang);
        assert_eq!(fake.injected.take(), [(0, domain_of(0, 1), hang, 50 * MS)]);
        runtime::sleep(MS).await;
        assert_eq!(fake.broken.take(), [(1, InjectedFault::Fault, 60 * MS)]);
        runtime::sleep(349 * MS).await;
        fake.events().stalled(domain_of(0, 1)).unwrap();
        runtime::sleep(MS).await;
        assert!(is_about(supervisor.with("near", |entry| entry.noticed_ns).unwrap() / 1000, 300));
        assert_eq!(supervisor.with("far", |entry| entry.noticed_ns), Some(0));
    });
}

#[test]
fn what_cannot_be_broken_is_refused() {
    let fake = Rc::new(Fake::default());
    with_client(&fake, &description(Restart::Never, &[]), async |_, client| {
        for (name, why) in [
            ("near", SupervisorError::NotRestartable),
            ("monitor-0", SupervisorError::NotRestartable),
            ("nobody", SupervisorError::NotFound),
            // It runs no monitor.
            ("monitor-2", SupervisorError::NotFound),
        ] {
            assert_eq!(client.chaos(Chaos::Kill, name.into()).await, refused(why), "{name}");
        }
        // A monitor has no workers.
        let asked = client.chaos_later(Chaos::Worker, "monitor-1".into(), 0).await;
        assert_eq!(asked, refused(SupervisorError::NotFound));
        assert_eq!((fake.injected.take().len(), fake.broken.take().len()), (0, 0));
    });
}

/// Each time the core is lost, and then its next monitor answers.
#[test]
fn who_breaks_a_monitor_is_told_when_the_core_was_lost_and_runs_again() {
    let memory = CoreMemory { used_pages: 1, free_pages: 2 };
    let fake = Rc::new(Fake::default());
    with_client(&fake, &plain(), async |_, client| {
        // The first was another's doing.
        fake.events().core_lost(1).unwrap();
        let cases = [
            (Chaos::Kill, InjectedFault::Panic),
            (Chaos::Fault, InjectedFault::Fault),
            (Chaos::Hang, InjectedFault::Hang),
            (Chaos::Block, InjectedFault::Block),
        ];
        for (generation, (what, how)) in (3..).zip(cases) {
            fake.pages.set(Some(memory));
            let asked = chaos(&client, what, "monitor-1");
            runtime::sleep(MS).await;
            assert_eq!(fake.broken.take(), [(1, how, 0)]);
            // Another core, which tells nothing of this one.
            fake.events().core_lost(2).unwrap();
            assert_eq!(asked.within(199 * MS).await, None, "it is not lost yet");
            fake.pages.set(None);
            fake.events().core_lost(1).unwrap();
            assert_eq!(asked.within(300 * MS).await, None, "it does not run yet");
            fake.pages.set(Some(memory));
            let Some(Ok(recovery)) = asked.within(10 * MS).await else { panic!("{what:?}") };
            assert_eq!((recovery.generation, recovery.noticed_us), (generation, 0));
            assert!(is_about(recovery.recovery_us, 500), "{recovery:?}");
        }
        let asked = chaos(&client, Chaos::Kill, "monitor-1");
        assert_eq!(asked.within(RETURN_LIMIT_NS + PROMPT_NS).await, Some(refused(SupervisorError::TimedOut)));
    });
}

#[test]
fn who_waits_for_a_component_is_told_once_it_serves_whoever_else_waits() {
    let fake = Rc::new(Fake::default());
    with_client(&fake, &plain(), async |_, client| {
        assert_eq!(client.serving("nobody".into()).await, refused(SupervisorError::NotFound));
        let line = runtime::timeout(PROMPT_NS, client.serving("far".into())).await.expect("it serves").unwrap();
        assert_eq!((line.name.as_str(), line.place, line.generation), ("far", Place::Core(1), 1));
        kill_near(&fake, 1);
        fake.gone.borrow_mut().push("far".into());
        fake.events().died("far".into(), 1, false, killed(domain_of(1, 1))).unwrap();
        made(&fake, "near", 2).await;
        made(&fake, "far", 2).await;
        let waiting = NAMES.map(|name| {
            let client = client.clone();
            begin(async move { client.serving(name.into()).await })
        });
        runtime::sleep(PROMPT_NS).await;
        for (core, asked) in (0..).zip(&waiting) {
            assert_eq!(asked.within(PROMPT_NS).await, None, "it does not serve yet");
            fake.serves(domain_of(core, 2));
            let line = asked.within(PROMPT_NS).await.expect("it serves").unwrap();
            assert_eq!((line.name.as_str(), line.generation), (NAMES[core as usize], 2));
        }
        // Silent for too long.
        kill_near(&fake, 2);
        let client = client.clone();
        let asked = begin(async move { client.serving("near".into()).await });
        fake.progresses.set(true);
        assert_eq!(asked.within(RETURN_LIMIT_NS - PROMPT_NS).await, None);
        assert_eq!(asked.within(2 * PROMPT_NS).await, Some(refused(SupervisorError::TimedOut)));
    });
}

/// Its own words for what the monitor refuses.
#[test]
fn a_core_is_changed_by_the_monitor_or_it_is_told_why_not() {
    let fake = Rc::new(Fake::default());
    with_client(&fake, &plain(), async |_, client| {
        for (unchanged, gives) in [
            (None, Ok(())),
            (Some(MonitorError::Busy), refused(SupervisorError::Busy)),
            (Some(MonitorError::NoCore), refused(SupervisorError::NotFound)),
            (Some(MonitorError::Away), refused(SupervisorError::TimedOut)),
        ] {
            fake.unchanged.set(unchanged);
            for run in [true, false] {
                assert_eq!(client.change_core(1, run).await, gives, "{unchanged:?}");
            }
            assert_eq!(fake.changes.take(), [(1, true), (1, false)]);
        }
    });
}

#[test]
fn ledgers_and_work_are_the_monitors_and_a_core_that_the_kernel_does_not_know_is_not_found() {
    let fake = Rc::new(Fake::default());
    with_client(&fake, &plain(), async |_, client| {
        let line = client.ledger(1, 0).await.unwrap().unwrap();
        assert_eq!((line.domain, line.name.as_str(), line.cpu_ns), (domain_of(1, 1), "near", 7));
        assert_eq!(client.ledger(1, line.domain + 1).await, Ok(None));
        assert_eq!(client.work(1, domain_of(1, 1)).await, Ok(Some(Work { own_ns: 5, ..Work::default() })));
        assert_eq!(client.work(1, domain_of(1, 2)).await, Ok(None));
        // On a host no kernel knows any.
        assert_eq!(client.core_time(0).await, refused(SupervisorError::NotFound));
        assert_eq!(client.core(0).await, Ok(None));
        fake.is_stuck.set(true);
        assert_eq!(client.ledger(1, 0).await, refused(SupervisorError::TimedOut));
    });
}
