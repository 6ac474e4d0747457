//! The contract `process` over channels: children, signals, jobs, timers, and what programs may.

use super::*;
use contracts::process::{
    Capabilities, ChildNews, ChildState, ForkOptions, Forked, IdChange, Ids, Interest, NAME_MAX, ProcessServer,
    StackChange, TIMERS_MAX, TerminalAccess, TimerStart, TimerState,
};
use process_core::notices::NOTICES_MAX;

const MS: u64 = 1_000_000;
const SIGHUP: u8 = 1;
const SIGTERM: u8 = 15;
const SIGCHLD: u8 = 17;
const SIGCONT: u8 = 18;
const SIGSTOP: u8 = 19;
const SIGTSTP: u8 = 20;
const SIGTTIN: u8 = 21;
const SIGNAL_LAST: u8 = 64;
const FORK: ForkOptions = ForkOptions { is_vfork: false, end_signal: SIGCHLD, user_limit: 1000 };
const ALL: Interest = Interest { ended: true, stopped: true, continued: true, ordinary: true, clones: true };

impl Program {
    /// What a fork made, with its channels; it runs.
    async fn born(server: &Rc<Server>, forked: Forked) -> Program {
        let number = (forked.client >> 32) as u32;
        let born = Program::of(server, forked.process, number.into(), number);
        born.process.here().unwrap();
        runtime::take_in_all().await;
        born
    }

    async fn news(&self) -> Option<ChildNews> {
        self.process.wait(Target::Any, ALL, false, true).await.unwrap()
    }
}

fn by(program: &Program) -> SignalCause {
    SignalCause::Process(program.id)
}

#[test]
fn a_fork_is_made_beside_its_parent_and_may_be_cancelled_by_it_alone() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, _spawn) = begin(&fake);
        let first = Program::first(&server).await;
        for end_signal in [SIGNAL_LAST + 1, u8::MAX] {
            let outcome = first.process.fork_prepare(ForkOptions { end_signal, ..FORK }).await;
            assert_eq!(outcome, denied(ProcessError::Invalid));
        }
        let loud = ForkOptions { end_signal: SIGNAL_LAST, ..FORK };
        let forked = first.process.fork_prepare(loud).await.unwrap();
        assert_eq!(fake.asked.take(), [(Some(DOMAIN), 0)]);
        assert_eq!((forked.process, forked.handles), (2, [5, 6]));
        let other = first.child(&server, 20).await;
        assert_eq!(other.process.fork_cancel(forked.process).await, denied(ProcessError::NotFound));
        assert_eq!(first.process.fork_cancel(forked.process).await, Ok(()));
        runtime::sleep(SOON_NS).await;
        assert_eq!(fake.killed.take(), [MADE]);
        assert_eq!(first.process.fork_cancel(forked.process).await, denied(ProcessError::NotFound));
        assert_eq!(first.process.list(2).await.unwrap().unwrap().process, other.id);
        // Another one runs, and can be cancelled no more.
        let born = Program::born(&server, first.process.fork_prepare(loud).await.unwrap()).await;
        assert_eq!(first.process.fork_cancel(born.id).await, denied(ProcessError::NotFound));
        born.dies(&server, DeathCause::Exit, Ended::Exited(1).to_status());
        let state = ChildState::Ended(Ended::Exited(1));
        assert_eq!(first.signal().await, (SIGNAL_LAST, SignalCause::Child { process: born.id, state }));
    });
}

/// Who forks and is killed meanwhile leaves no domain behind.
#[test]
fn a_child_that_comes_too_late_is_ended() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { makes_in_ns: Cell::new(5 * MS), ..Fake::default() });
        let (server, _spawn) = begin(&fake);
        let first = Program::first(&server).await;
        assert!(runtime::timeout(MS, first.process.fork_prepare(FORK)).await.is_err());
        assert_eq!(first.process.ids(0).await, Ok(vec![FIRST]));
        runtime::sleep(SOON_NS).await;
        assert_eq!((fake.killed.take(), first.process.ids(0).await), (vec![MADE], Ok(vec![FIRST])));
    });
}

/// So a bomb that asks again and again spends no time of others.
#[test]
fn a_fork_that_is_refused_again_and_again_waits_ever_longer() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, _spawn) = begin(&fake);
        let first = Program::first(&server).await;
        let waits = async || {
            fake.refuses.borrow_mut().push_back(SpawnError::NoMemory);
            let before_ns = runtime::now_ns();
            assert_eq!(first.process.fork_prepare(FORK).await, denied(ProcessError::TooMany));
            (runtime::now_ns() - before_ns) / MS
        };
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512] {
            assert_eq!(waits().await, expected);
        }
        assert!(first.process.fork_prepare(FORK).await.is_ok());
        assert_eq!((waits().await, waits().await), (1, 2), "until one was granted");
        // Those that could not be made have no place.
        for _ in 0..450 {
            waits().await;
        }
        assert!(first.process.fork_prepare(FORK).await.is_ok());
    });
}

#[test]
fn a_user_is_held_to_its_limit() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let user = first.child(&server, 20).await;
        let (ids, may) = user.process.set_ids(true, IdChange::One(33)).await.unwrap();
        assert_eq!((ids, may.effective), (Ids { real: 33, effective: 33, saved: 33 }, 0));
        let limited = |user_limit| user.process.fork_prepare(ForkOptions { user_limit, ..FORK });
        assert_eq!(limited(1).await, denied(ProcessError::TooMany));
        assert!(limited(2).await.is_ok());
    });
}

#[test]
fn a_parent_sleeps_until_its_vfork_gives_the_stack_back() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let vfork = ForkOptions { is_vfork: true, ..FORK };
        let child = Program::born(&server, first.process.fork_prepare(vfork).await.unwrap()).await;
        let change = |offset| vec![StackChange { offset, bytes: vec![1, 2] }];
        let mut waiting = pin!(first.process.vfork_wait(child.id));
        is_sent(waiting.as_mut()).await;
        assert_eq!(child.process.vfork_release(change(8), false).await, Ok(()));
        assert_eq!(child.process.vfork_release(change(16), false).await, Ok(()));
        assert!(runtime::timeout(SOON_NS, waiting.as_mut()).await.is_err(), "the child still has it");
        assert_eq!(child.process.vfork_release(Vec::new(), true).await, Ok(()));
        assert_eq!(waiting.await, Ok(change(8)));
        assert_eq!(first.process.vfork_wait(child.id).await, Ok(change(16)));
        assert_eq!(first.process.vfork_wait(child.id).await, Ok(Vec::new()));
        assert_eq!(first.process.vfork_wait(child.id).await, denied(ProcessError::NotFound));
        assert_eq!(child.process.vfork_release(change(24), true).await, denied(ProcessError::NotFound));

        // A parent that does not wait any more asks no more; one whose child ends is told so.
        let child = Program::born(&server, first.process.fork_prepare(vfork).await.unwrap()).await;
        assert!(runtime::timeout(MS, first.process.vfork_wait(child.id)).await.is_err());
        runtime::take_in_all().await;
        assert_eq!(child.process.vfork_release(change(8), true).await, denied(ProcessError::NotFound));
        let child = Program::born(&server, first.process.fork_prepare(vfork).await.unwrap()).await;
        let mut waiting = pin!(first.process.vfork_wait(child.id));
        is_sent(waiting.as_mut()).await;
        runtime::take_in_all().await;
        child.dies(&server, DeathCause::Killed, 0);
        assert_eq!(waiting.await, Ok(Vec::new()));
    });
}

#[test]
fn a_job_that_stops_and_goes_on_is_told_to_its_parent() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let job = first.child(&server, 20).await;
        assert_eq!(job.process.stop(SIGTSTP).await, Ok(false), "nobody could continue it");
        job.process.set_group(0, 0).await.unwrap();
        assert_eq!(first.process.stop(SIGSTOP).await, Ok(false));
        let mut waiting = pin!(first.process.wait(Target::Process(job.id), ALL, true, true));
        is_sent(waiting.as_mut()).await;
        assert_eq!(job.process.stop(SIGTSTP).await, Ok(true));
        let news = |state| ChildNews { process: job.id, state, cpu_ns: 0 };
        let told = |state| (SIGCHLD, SignalCause::Child { process: job.id, state });
        assert_eq!(waiting.await, Ok(Some(news(ChildState::Stopped(SIGTSTP)))));
        assert_eq!(first.signal().await, told(ChildState::Stopped(SIGTSTP)));
        assert_eq!(first.process.list(job.id).await.unwrap().unwrap().state, 'T');
        job.process.resumed().unwrap();
        assert_eq!(first.signal().await, told(ChildState::Continued));
        assert_eq!(first.news().await, Some(news(ChildState::Continued)));
        job.process.resumed().unwrap();
        first.process.watch_children(false, false).unwrap();
        runtime::take_in_all().await;
        assert_eq!(job.process.stop(SIGSTOP).await, Ok(true));
        first.hears_nothing().await;
        assert_eq!(first.news().await, Some(news(ChildState::Stopped(SIGSTOP))), "but it can ask");
        // Who ignores its children has none to wait for.
        first.process.watch_children(true, false).unwrap();
        runtime::take_in_all().await;
        job.dies(&server, DeathCause::Killed, 0);
        assert_eq!(first.process.wait(Target::Any, ALL, true, true).await, denied(ProcessError::NoChild));
    });
}

#[test]
fn a_terminal_is_its_foregrounds() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let [job, helper] = [first.child(&server, 20).await, first.child(&server, 21).await];
        job.process.set_group(0, 0).await.unwrap();
        first.process.set_group(helper.id, job.id).await.unwrap();
        assert_eq!(first.process.groups(helper.id).await, Ok((job.id, FIRST)));
        let access = |foreground, signal| job.process.terminal_access(foreground, signal);
        assert_eq!(access(job.id, true).await, Ok(TerminalAccess::Foreground));
        assert_eq!(access(FIRST, false).await, Ok(TerminalAccess::Background));
        job.hears_nothing().await;
        assert_eq!(access(FIRST, true).await, Ok(TerminalAccess::Background));
        for program in [&job, &helper] {
            assert_eq!(program.signal().await, (SIGTTIN, SignalCause::Process(0)));
        }
        assert_eq!(first.process.terminal_access(job.id, true).await, Ok(TerminalAccess::Orphaned));
        first.hears_nothing().await;
        // A session of its own has another terminal.
        let own = first.child(&server, 22).await;
        assert_eq!(own.process.new_session().await, Ok(own.id));
        assert_eq!(own.process.groups(0).await, Ok((own.id, own.id)));
        assert_eq!(job.process.new_session().await, denied(ProcessError::Denied));
        assert_eq!(own.process.set_group(job.id, 0).await, denied(ProcessError::NotFound));
    });
}

#[test]
fn signals_reach_whom_they_are_for() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, _spawn) = begin(&fake);
        let first = Program::first(&server).await;
        let child = first.child(&server, 20).await;
        let to = |number| first.process.signal(Target::Process(child.id), number);
        assert_eq!((to(0).await, to(SIGNAL_LAST + 1).await), (Ok(()), denied(ProcessError::Invalid)));
        child.hears_nothing().await;
        assert_eq!(to(SIGNAL_LAST).await, Ok(()));
        assert_eq!(child.signal().await, (SIGNAL_LAST, by(&first)));
        assert_eq!(first.process.signal(Target::Process(99), 1).await, denied(ProcessError::NotFound));
        // By a handle, as long as it is that process.
        let handle = first.process.handle(child.id).await.unwrap();
        assert_eq!(first.process.signal(Target::Handle(handle), SIGTERM).await, Ok(()));
        assert_eq!(child.signal().await, (SIGTERM, by(&first)));
        let strange = child.process.signal(Target::Handle(handle), SIGTERM).await;
        assert_eq!(strange, denied(ProcessError::NotFound), "who does not hold it");
        let event = first.process.event(0, false).await.unwrap();
        assert_eq!(first.process.signal(Target::Handle(event), 0).await, denied(ProcessError::Invalid));
        assert_eq!(first.process.handle(99).await, denied(ProcessError::NotFound));
        // One that cannot be caught ends the domain.
        assert_eq!(to(9).await, Ok(()));
        runtime::sleep(SOON_NS).await;
        assert_eq!(fake.killed.take(), [20]);
        child.dies(&server, DeathCause::Killed, 0);
        let over = first.process.wait(Target::Handle(handle), ALL, true, true).await.unwrap().unwrap();
        assert_eq!(over.process, child.id);
        assert_eq!(first.process.signal(Target::Handle(handle), 0).await, denied(ProcessError::NotFound));
        let outcome = first.process.wait(Target::Handle(handle), ALL, true, true).await;
        assert_eq!(outcome, denied(ProcessError::NoChild));
    });
}

#[test]
fn signals_with_data_are_kept_in_order_until_too_many_wait() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        // It runs, and takes nothing from its channel.
        let [unread, served] = loopback_memory(BULK);
        let served = ServerChannel::new(Wiring { peer_set: 20, ..loopback_wiring(served, false) });
        let id = server.table.borrow_mut().prepare(FIRST, 20, served.peer().id()).unwrap();
        let peer = served.peer().clone();
        runtime::spawn(serve_process(Rc::new(Service(server.clone())), served));
        Service(server.clone()).here(&peer);
        let queue = |number, value| first.process.queue_signal(Target::Process(id), number, -1, value);
        assert_eq!(queue(SIGNAL_LAST + 1, 0).await, denied(ProcessError::Invalid));
        let group = first.process.queue_signal(Target::OwnGroup, 40, -1, 0).await;
        assert_eq!(group, denied(ProcessError::Invalid));
        assert_eq!(queue(0, 0).await, Ok(()), "a question");
        let mut sent = 0;
        while sent < 1000 && queue(SIGNAL_LAST, sent).await.is_ok() {
            sent += 1;
        }
        assert!((256 + NOTICES_MAX as u64..1000).contains(&sent), "{sent}");
        assert_eq!(queue(SIGNAL_LAST, sent).await, denied(ProcessError::TooMany));
        let reads = ProcessClient::new(ClientChannel::new(loopback_wiring(unread, true)));
        for expected in 0..sent {
            let event = reads.next_event().await;
            let ProcessEvent::SignalSent { number, cause } = event else { panic!("{event:?}") };
            assert_eq!(
                (number, cause),
                (SIGNAL_LAST, SignalCause::Queued { process: FIRST, code: -1, value: expected })
            );
        }
        assert_eq!(queue(40, 7).await, Ok(()), "there is room again");
        let event = reads.next_event().await;
        assert!(matches!(event, ProcessEvent::SignalSent { number: 40, .. }), "{event:?}");
    });
}

/// What comes while older signals wait comes after them.
#[test]
fn a_late_signal_overtakes_none_that_waits() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let child = first.child(&server, 20).await;
        let cause = |value| SignalCause::Queued { process: FIRST, code: 0, value };
        for value in 0..300 {
            server.deliver(child.id, 40, cause(value));
        }
        runtime::sleep(SOON_NS).await;
        let mut expected = 0;
        // Some have been read, and the server has not looked yet.
        for more in 300..320 {
            assert_eq!(child.signal().await, (40, cause(expected)));
            expected += 1;
            server.deliver(child.id, 40, cause(more));
        }
        for value in expected..320 {
            assert_eq!(child.signal().await, (40, cause(value)));
        }
    });
}

#[test]
fn what_came_before_a_program_said_hello_is_told_then() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        server.deliver(FIRST, SIGTERM, SignalCause::Process(0));
        let first = Program::first(&server).await;
        assert_eq!(first.signal().await, (SIGTERM, SignalCause::Process(0)));
        let forked = first.process.fork_prepare(FORK).await.unwrap();
        first.process.signal(Target::Process(forked.process), SIGHUP).await.unwrap();
        let born = Program::born(&server, forked).await;
        assert_eq!(born.signal().await, (SIGHUP, by(&first)));
    });
}

#[test]
fn orphans_hear_of_their_new_parent_and_get_what_they_asked_for() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { is_late: Cell::new(true), ..Fake::default() });
        let (server, _spawn) = begin(&fake);
        let first = Program::first(&server).await;
        let parent = first.child(&server, 20).await;
        let leaf = parent.child(&server, 21).await;
        let unheard = parent.process.fork_prepare(FORK).await.unwrap();
        assert_eq!(leaf.process.parent_death(Some(SIGTERM)).await, Ok(SIGTERM));
        assert_eq!(leaf.process.parent_death(None).await, Ok(SIGTERM));
        assert_eq!(leaf.process.parent_death(Some(SIGNAL_LAST + 1)).await, denied(ProcessError::Invalid));
        let stopped = parent.child(&server, 22).await;
        stopped.process.set_group(0, 0).await.unwrap();
        assert_eq!(stopped.process.stop(SIGTSTP).await, Ok(true));
        first.process.set_group(parent.id, 0).await.unwrap();
        parent.dies(&server, DeathCause::Killed, 0);
        for program in [&leaf, &stopped] {
            let event = program.process.next_event().await;
            assert!(matches!(event, ProcessEvent::Adopted { parent: FIRST }), "{event:?}");
        }
        assert_eq!(leaf.signal().await, (SIGTERM, by(&parent)));
        stopped.hears_nothing().await;
        // Its parent had started that one: it runs, hears who its parent is, and ends as others do.
        runtime::sleep(SOON_NS).await;
        assert_eq!(fake.discarded.take(), [MADE]);
        let late = Program::born(&server, unheard).await;
        let event = late.process.next_event().await;
        assert!(matches!(event, ProcessEvent::Adopted { parent: FIRST }), "{event:?}");
        late.dies(&server, DeathCause::Killed, 0);
        let over = first.process.wait(Target::Process(late.id), ALL, true, true).await.unwrap().unwrap();
        assert_eq!(over.state, ChildState::Ended(Ended::Signalled(9)));
    });
}

#[test]
fn stopped_jobs_that_nobody_can_continue_are_told() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let shell = first.child(&server, 20).await;
        shell.process.new_session().await.unwrap();
        let job = shell.child(&server, 21).await;
        job.process.set_group(0, 0).await.unwrap();
        assert_eq!(job.process.stop(SIGTSTP).await, Ok(true));
        shell.dies(&server, DeathCause::Killed, 0);
        let event = job.process.next_event().await;
        assert!(matches!(event, ProcessEvent::Adopted { parent: FIRST }), "{event:?}");
        for number in [SIGHUP, SIGCONT] {
            assert_eq!(job.signal().await, (number, SignalCause::Process(0)));
        }
    });
}

#[test]
fn alarms_expire_by_events_until_their_program_ends() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        runtime::spawn(server.clone().keep_time());
        runtime::sleep(SOON_NS).await;
        let last = TIMERS_MAX - 1;
        for beyond in [TIMERS_MAX, u32::MAX] {
            let outcome = first.process.set_alarm(beyond, TimerStart::In(MS), 0).await;
            assert_eq!(outcome, denied(ProcessError::Invalid));
            assert_eq!(first.process.alarm(beyond).await, denied(ProcessError::Invalid));
        }
        let disarmed = TimerState::default();
        assert_eq!(first.process.set_alarm(last, TimerStart::In(500 * MS), 20 * MS).await, Ok(disarmed));
        assert_eq!(first.process.set_alarm(0, TimerStart::In(100 * MS), 0).await, Ok(disarmed));
        let state = first.process.alarm(last).await.unwrap();
        assert_eq!((state.left_ns.div_ceil(MS), state.interval_ns), (500, 20 * MS));
        let before_ns = runtime::now_ns();
        let event = first.process.next_event().await;
        assert!(matches!(event, ProcessEvent::Expired { timer: 0, times: 1 }), "{event:?}");
        assert_eq!((runtime::now_ns() - before_ns).div_ceil(MS), 100);
        assert_eq!(first.process.alarm(0).await, Ok(disarmed));
        for _ in 0..3 {
            let event = first.process.next_event().await;
            assert!(matches!(event, ProcessEvent::Expired { timer, times: 1 } if timer == last), "{event:?}");
        }
        let state = first.process.set_alarm(last, TimerStart::Never, 0).await.unwrap();
        assert_eq!((state.left_ns.div_ceil(MS), state.interval_ns), (20, 20 * MS));
        first.hears_nothing().await;
    });
}

/// By what they are and may, programs change what they are, and `ps` tells it.
#[test]
fn a_program_changes_itself_within_what_it_may() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let child = first.child(&server, 20).await;
        child.process.set_groups(vec![7, 8]).await.unwrap();
        let change = IdChange::All([Some(3), Some(4), Some(5)]);
        let ids = Ids { real: 3, effective: 4, saved: 5 };
        assert_eq!(child.process.set_ids(false, change).await.unwrap().0, ids);
        let few = Capabilities { effective: 0, permitted: 2, ..Capabilities::default() };
        assert_eq!(child.process.set_capabilities(few).await, Ok(()));
        assert_eq!(child.process.set_groups(vec![9]).await, denied(ProcessError::Denied));
        let outcome = child.process.set_capabilities(Capabilities::default()).await;
        assert_eq!(outcome, denied(ProcessError::Denied));
        let line = first.process.list(child.id).await.unwrap().unwrap();
        assert_eq!((line.identity.groups, line.identity.capabilities), (ids, few));
        assert_eq!(line.identity.others, [7, 8]);
    });
}

#[test]
fn the_process_table_is_told_line_by_line() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        first.process.describe("init".into(), "init -x".into()).unwrap();
        let child = first.child(&server, 20).await;
        let line = first.process.list(0).await.unwrap().unwrap();
        assert_eq!((line.process, line.parent, line.group, line.session, line.state), (FIRST, 0, FIRST, FIRST, 'S'));
        assert_eq!((&line.name[..], &line.command_line[..]), ("init", "init -x"));
        assert_eq!((line.pages, line.cpu_ns), (DOMAIN, 10 * DOMAIN));
        child.dies(&server, DeathCause::Killed, 0);
        let line = first.process.list(2).await.unwrap().unwrap();
        assert_eq!((line.process, line.parent, line.state), (child.id, FIRST, 'Z'));
        assert_eq!((line.pages, line.cpu_ns, line.children_cpu_ns), (0, 5, 0));
        first.news().await.unwrap();
        assert_eq!(first.process.list(2).await, Ok(None));
        assert_eq!(first.process.list(0).await.unwrap().unwrap().children_cpu_ns, 5);
        for domain in 1000..1250 {
            server.table.borrow_mut().prepare(FIRST, domain, domain << 32).unwrap();
        }
        let ids = first.process.ids(0).await.unwrap();
        assert_eq!((ids.len(), ids[0], ids[1]), (200, FIRST, 3));
        assert_eq!(first.process.ids(ids[199] + 1).await.map(|rest| rest.len()), Ok(51));
    });
}

#[test]
fn the_host_is_named_for_all() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        assert_eq!(first.process.host().await, Ok(("pelago".into(), "(none)".into())));
        let long = "x".repeat(NAME_MAX);
        assert_eq!(first.process.name_host(false, long.clone()).await, Ok(()));
        assert_eq!(first.process.name_host(true, "domain".into()).await, Ok(()));
        assert_eq!(first.process.name_host(false, format!("{long}x")).await, denied(ProcessError::Invalid));
        let child = first.child(&server, 20).await;
        assert_eq!(child.process.host().await, Ok((long, "domain".into())));
    });
}

#[test]
fn who_sleeps_on_a_word_is_woken_by_who_shares_it() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let child = first.child(&server, 20).await;
        assert!(runtime::timeout(MS, child.process.sleep_on(7, 64, 1)).await.is_err());
        runtime::take_in_all().await;
        assert_eq!(first.process.wake(7, 64, 9, 1).await, Ok(0), "it has given up");
        let sleeps = |bits| child.process.sleep_on(7, 64, bits);
        let (mut one, mut two, mut three) = (pin!(sleeps(1)), pin!(sleeps(3)), pin!(sleeps(3)));
        is_sent(one.as_mut()).await;
        is_sent(two.as_mut()).await;
        is_sent(three.as_mut()).await;
        runtime::take_in_all().await;
        assert_eq!(first.process.wake(7, 64, 9, 2).await, Ok(2));
        assert_eq!((two.await, three.await), (Ok(()), Ok(())));
        assert_eq!(first.process.wake(7, 64, 9, u32::MAX).await, Ok(1));
        assert_eq!(one.await, Ok(()));
    });
}

/// The monitor gives an ended program's channel to the next one.
#[test]
fn the_next_program_on_a_channel_hears_nothing_that_was_for_the_last() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let child = first.child(&server, 20).await;
        child.memory[0].raise_generation();
        runtime::take_in_all().await;
        server.deliver(child.id, SIGTERM, SignalCause::Process(0));
        server.deliver(FIRST, SIGTERM, SignalCause::Process(0));
        assert_eq!(first.signal().await, (SIGTERM, SignalCause::Process(0)));
        assert_eq!(server.early.borrow().keys().collect::<Vec<_>>(), [&child.id], "it is kept");
    });
}

#[test]
fn only_who_is_not_there_any_more_has_ended() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, _spawn) = begin(&fake);
        let first = Program::first(&server).await;
        for domain in 1000..1150 {
            server.table.borrow_mut().prepare(FIRST, domain, domain << 32).unwrap();
        }
        let mut all = server.table.borrow().living_domains();
        assert_eq!(all.len(), 151);
        *fake.domains.borrow_mut() = all.clone();
        server.clone().look_for_dead().await;
        assert_eq!(first.news().await, None);
        // One of the last answer's.
        all.retain(|domain| *domain != 1140);
        *fake.domains.borrow_mut() = all.clone();
        server.clone().look_for_dead().await;
        assert_eq!(server.table.borrow().living_domains(), all);
        assert_eq!(first.news().await.unwrap().state, ChildState::Ended(Ended::Signalled(9)));
    });
}

#[test]
fn a_client_that_is_no_process_is_told_so() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let stranger = component(&server, "stranger");
        assert_eq!(stranger.hello().await, denied(ProcessError::NotFound));
        assert_eq!(stranger.signal(Target::Process(FIRST), 9).await, denied(ProcessError::NotFound));
        assert_eq!(stranger.stop(SIGSTOP).await, denied(ProcessError::NotFound));
        assert_eq!(stranger.open_pipe(5, true, false, false).await, denied(ProcessError::NotFound));
    });
}
