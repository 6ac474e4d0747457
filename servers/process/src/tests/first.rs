//! The first program: how it begins, and how the machine ends with it.

use super::*;
use contracts::process::ChildState;

/// What `etc/run` says, of a program with these arguments.
fn run_of(arguments: &[&str]) -> Option<&'static [u8]> {
    let arguments = arguments.iter().map(|argument| String::from(*argument)).collect();
    Some(system::encode(&system::Run { arguments, ..system::Run::default() }).leak())
}

async fn start(fake: &Rc<Fake>, arguments: &[&str]) -> Rc<Server> {
    let server = serve(fake).0;
    crate::server::start_first(server.clone(), run_of(arguments)).await;
    server
}

/// Is a console's signal for the first program still kept?
async fn waits_for_first(server: &Rc<Server>) -> bool {
    component(server, "console").signal(Target::Process(FIRST), 2).await.is_ok()
}

#[test]
fn the_first_program_is_asked_for_until_its_servers_are_there() {
    runtime::testing::run(async {
        let refuses = RefCell::new([SpawnError::NotFound, SpawnError::Failed, SpawnError::NotFound].into());
        let fake = Rc::new(Fake { refuses, ..Fake::default() });
        let server = start(&fake, &["/bin/sh"]).await;
        assert_eq!(fake.started.take(), [MADE + 3]);
        assert_eq!(fake.asked.take(), [(None, 0); 4]);
        assert_eq!(server.table.borrow().by_domain(MADE + 3), Some(FIRST));
        let first = Program::of(&server, FIRST, MADE + 3, MADE as u32 + 3);
        let birth = first.process.hello().await.unwrap();
        assert_eq!((birth.process, birth.parent, birth.group, birth.session), (FIRST, 0, FIRST, FIRST));
    });
}

#[test]
fn servers_that_do_not_come_are_not_waited_for_without_end() {
    const TIMES: usize = 20_000;
    runtime::testing::run(async {
        let fake = Rc::new(Fake { refuses: RefCell::new([SpawnError::NotFound; TIMES].into()), ..Fake::default() });
        let server = start(&fake, &["/bin/sh"]).await;
        let asked = fake.asked.borrow().len();
        assert!((1000..TIMES).contains(&asked), "{asked}");
        assert_eq!((fake.started.take(), server.table.borrow().living_domains()), (vec![], vec![]));
        assert!(!waits_for_first(&server).await, "nobody comes any more");
    });
}

#[test]
fn another_refusal_is_final_and_so_is_having_no_program() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { refuses: RefCell::new([SpawnError::NoMemory].into()), ..Fake::default() });
        let server = start(&fake, &["/bin/sh"]).await;
        assert_eq!((fake.asked.take().len(), waits_for_first(&server).await), (1, false));
        let server = start(&fake, &[]).await;
        assert_eq!((fake.asked.take().len(), waits_for_first(&server).await), (0, false));
    });
}

#[test]
fn a_question_of_the_console_is_no_signal_that_waits() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let server = serve(&fake).0;
        let console = component(&server, "console");
        assert_eq!(console.signal(Target::Process(FIRST), 0).await, denied(ProcessError::NotFound));
        assert_eq!(console.signal(Target::Process(FIRST), 2).await, Ok(()));
        server.add_first(DOMAIN, CLIENT);
        let first = Program::first(&server).await;
        assert_eq!(first.signal().await, (2, SignalCause::Process(0)));
        first.hears_nothing().await;
    });
}

fn lines_at_end(is_attended: bool, leaves_one: bool) -> Vec<String> {
    runtime::testing::logged(async move {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        first.process.describe("serverd".into(), "serverd -d".into()).unwrap();
        runtime::spawn(server.clone().end_unattended());
        runtime::take_in_all().await;
        let left = if leaves_one { Some(first.child(&server, 20).await) } else { None };
        server.opened.log.tell("serverd", "one");
        server.opened.log.tell("serverd", "two");
        let how = Ended::Exited(0);
        let console = component(&server, "console");
        if is_attended {
            let mut asks = pin!(console.first_ended());
            is_sent(asks.as_mut()).await;
            first.dies(&server, DeathCause::Exit, how.to_status());
            assert_eq!(asks.await, Ok(how));
        } else {
            first.dies(&server, DeathCause::Exit, how.to_status());
        }
        runtime::sleep(10 * SOON_NS).await;
        drop(left);
    })
    .1
}

/// Whoever asked for the end of the first program ends the machine, when all is written.
#[test]
fn the_machine_ends_with_its_first_program() {
    const ENDS: &str = "the first program ended with status 0";
    let attended = lines_at_end(true, false);
    assert_eq!(attended, ["log of serverd: one", "log of serverd: two"], "what was held back is written");
    assert_eq!(lines_at_end(false, false)[2..], [ENDS]);
    let left = lines_at_end(true, true);
    assert!(left[2].starts_with("serverd went into the background"), "{left:?}");
}

#[test]
fn programs_have_a_line_a_second_each_and_too_many_have_one_together() {
    let ((), lines) = runtime::testing::logged(async {
        let log = crate::log::Log::default();
        for name in 0..64 {
            log.tell(&format!("p{name}"), "x");
        }
        log.tell("one more", "x");
        // From here on each is held back.
        log.tell("yet one", "y");
        log.tell("another", "y");
        log.tell("p5", "z");
        log.end();
    });
    assert_eq!(lines.len(), 67);
    assert_eq!(lines[63..65], ["log of p63: x", "log of one more: x"]);
    assert_eq!(lines[65..], ["log of another: y (and 1 more in this second)", "log of p5: z"]);
}

/// How a domain ended, as the kernel tells it, is how its process ended.
#[test]
fn an_end_is_told_as_the_kernel_saw_it() {
    let causes = [
        (DeathCause::Exit, Ended::Exited(3).to_status(), Ended::Exited(3), true),
        (DeathCause::Exit, Ended::Signalled(15).to_status(), Ended::Signalled(15), true),
        (DeathCause::Exit, 7, Ended::Exited(7), false),
        (DeathCause::Exception, 14, Ended::Signalled(11), false),
        (DeathCause::BadCall, 0, Ended::Signalled(11), false),
        (DeathCause::Killed, 0, Ended::Signalled(9), true),
    ];
    for (cause, status, how, in_order) in causes {
        let ((), lines) = runtime::testing::logged(async {
            let (server, _spawn) = begin(&Rc::new(Fake::default()));
            let first = Program::first(&server).await;
            let child = first.child(&server, 20).await;
            child.dies(&server, cause, status);
            let state = ChildState::Ended(how);
            assert_eq!(first.signal().await, (17, SignalCause::Child { process: child.id, state }));
        });
        assert_eq!(lines.is_empty(), in_order, "{lines:?}");
    }
}
