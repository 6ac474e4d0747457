//! Commands against a supervisor that answers, one that does not, and none.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;

use crate::service::{console, console_in, state};
use channel::{ClientChannel, Layout, Peer, ServerChannel};
use console_core::commands::{Answer, Commands, LIMIT_NS};
use console_core::control::HELP;
use console_core::ending::put_away;
use console_core::record::{Kept, Progress, Request};
use contracts::lookup::{CacheCounters, LookupClient, LookupError, LookupServer, serve_lookup};
use contracts::names::Named;
use contracts::storage::{CLOSE_LIMIT_NS, StorageClient, StorageError, StorageServer, serve_storage};
use contracts::supervisor::*;

struct Fake;

impl SupervisorServer for Fake {
    async fn component(&self, _peer: &Peer, index: u32) -> Result<Option<ComponentLine>, SupervisorError> {
        let line = |name: &str, place| ComponentLine {
            name: name.into(),
            place,
            generation: 3,
            running: true,
            pages: 10,
            cpu_ns: 5_000_000,
            last_recovery_us: 812,
        };
        let all = [("ip", Place::Core(1)), ("tcp", Place::Cores(0)), ("crew", Place::Cores(2))];
        Ok(all.get(index as usize).map(|(name, place)| line(name, *place)))
    }

    async fn dispatcher(
        &self,
        _peer: &Peer,
        index: u32,
        number: u32,
    ) -> Result<Option<DispatcherLine>, SupervisorError> {
        let line = |name: &str, core, state| {
            Some(DispatcherLine { name: name.into(), core, state, pages: 10, cpu_ns: 5_000_000 })
        };
        Ok(match (index, number) {
            (0, 0) => line("ip", 1, DispatcherState::Serving),
            (2, 0) => line("crew-0", 0, DispatcherState::Starting),
            (2, 1) => line("crew-7", 7, DispatcherState::Ended),
            _ => None,
        })
    }

    async fn chaos(&self, _peer: &Peer, what: Chaos, name: String) -> Result<Recovery, SupervisorError> {
        match (what, name.as_str()) {
            (Chaos::Kill, "ip") => Ok(Recovery { recovery_us: 812, generation: 2, noticed_us: 0 }),
            (Chaos::Block, "ip") => Ok(Recovery { recovery_us: 900, generation: 3, noticed_us: 165_000 }),
            (Chaos::Hang, _) | (_, "supervisor") => pending().await,
            (_, "tcp") => Err(SupervisorError::NotRestartable),
            _ => Err(SupervisorError::NotFound),
        }
    }

    async fn chaos_later(&self, _: &Peer, _: Chaos, name: String, after_ns: u64) -> Result<(), SupervisorError> {
        let expected = [("ip", 100_000_000), ("names", 107_000_000)];
        if expected.contains(&(name.as_str(), after_ns)) { Ok(()) } else { Err(SupervisorError::NotFound) }
    }

    async fn core(&self, _peer: &Peer, core: u32) -> Result<Option<CoreLine>, SupervisorError> {
        let line = |runs, of: &str, programs_ns, objects| CoreLine {
            runs,
            claimed_by: of.into(),
            programs_ns,
            used_pages: 5,
            free_pages: 7,
            objects,
        };
        Ok(match core {
            0 => Some(line(CoreRuns::Monitor, "", 1_234_567, (1..14).collect())),
            1 => Some(line(CoreRuns::KernelCore, "webd", 0, Vec::new())),
            2 => Some(line(CoreRuns::Program, "webd", 42_000, Vec::new())),
            3 => Some(line(CoreRuns::Nothing, "monitor", 9_000, Vec::new())),
            _ => None,
        })
    }

    async fn core_time(&self, _peer: &Peer, core: u32) -> Result<Option<CoreTime>, SupervisorError> {
        let time = CoreTime { clock_ns: 9000, idle_ns: 1000, kernel_ns: 2000, domains_ns: 3000, ended_ns: 3000 };
        if core < 3 { Ok((core != 1).then_some(time)) } else { Err(SupervisorError::NotFound) }
    }

    async fn ledger(&self, _peer: &Peer, core: u32, from: u64) -> Result<Option<LedgerLine>, SupervisorError> {
        let line = |domain, name: &str, client| {
            let paid = vec![Paid { payer: 50, client, paid_ns: 3000 }];
            Some(LedgerLine { domain, name: name.into(), cpu_ns: 3000, paid })
        };
        Ok(match (core, from) {
            (0, 0) => line(4, "disk", 9),
            (0, 5..=9) => line(9, "client", 9),
            _ => None,
        })
    }

    async fn work(&self, _peer: &Peer, _core: u32, domain: u64) -> Result<Option<Work>, SupervisorError> {
        let clients = vec![("client".into(), 2000)];
        Ok((domain == 4).then_some(Work { clients, others_ns: 0, ended_ns: 0, own_ns: 500, ran_ns: 4000 }))
    }

    async fn change_core(&self, _peer: &Peer, core: u32, _run: bool) -> Result<(), SupervisorError> {
        match core {
            0 => Err(SupervisorError::NotFound),
            1 => Err(SupervisorError::Busy),
            _ => Ok(()),
        }
    }

    async fn serving(&self, _peer: &Peer, name: String) -> Result<ComponentLine, SupervisorError> {
        // Of itself it does not know.
        let last_recovery_us = if name == "supervisor" { 0 } else { 900 };
        let (place, running) = (Place::Core(0), true);
        let line = ComponentLine { name, place, generation: 2, running, pages: 1, cpu_ns: 0, last_recovery_us };
        Ok(line)
    }
}

impl LookupServer for Fake {
    async fn find(&self, _peer: &Peer, contract: String, index: u32) -> Result<Named, LookupError> {
        let named = |component: &str, core| {
            Ok(Named { component: component.into(), contract: contract.clone(), domain: 1, core, generation: 4 })
        };
        match (contract.as_str(), index) {
            ("crew", 0) => named("crew-2", 2),
            ("crew", 1) => named("crew-3", 3),
            ("away", _) => Err(LookupError::Away),
            _ => Err(LookupError::NotFound),
        }
    }

    async fn counters(&self, _peer: &Peer) -> Result<CacheCounters, LookupError> {
        Ok(CacheCounters { hits: 5, misses: 3, dropped: 1 })
    }
}

fn commands(wired: bool) -> Commands {
    let (client, server) = channel::loopback(Layout::default());
    runtime::spawn(serve_supervisor(Rc::new(Fake), server));
    let client = SupervisorClient::new(client);
    let (names, server) = channel::loopback(Layout::default());
    runtime::spawn(serve_lookup(Rc::new(Fake), server));
    let names = LookupClient::new(names);
    Commands {
        supervisor: Box::new(move || wired.then(|| client.clone())),
        lookup: Box::new(move || wired.then(|| names.clone())),
        storages: Box::new(Vec::new),
        power_off: Box::new(|| "not here".into()),
    }
}

#[test]
fn answers_tell_what_happened() {
    runtime::testing::run(async {
        let commands = commands(true);
        let (lines, last) = commands.run("components").await.unwrap();
        assert_eq!((lines.len(), last.as_str()), (3, "3 components"));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(lines[1].starts_with("tcp ") && lines[1].contains(" cores: 0 ") && lines[1].contains("generation 3"));
        assert_eq!(words(&lines[0]), "ip core 1 generation 3 running 40 KiB 5 ms last recovery 812 us");
        assert!(lines[2].starts_with("crew ") && lines[2].contains(" cores: 2 "));
        let (lines, last) = commands.run("components -d").await.unwrap();
        let lines: Vec<_> = lines.iter().map(|line| words(line)).collect();
        let expected = [
            "ip core 1 serving 40 KiB 5000 us",
            "crew-0 core 0 starting 40 KiB 5000 us",
            "crew-7 core 7 ended 40 KiB 5000 us",
        ];
        assert_eq!((&lines[..], last.as_str()), (&expected.map(String::from)[..], "3 dispatchers"));
        assert!(commands.run("components -x").await.unwrap_err().contains("takes -d"));
        let killed = commands.run(" chaos kill ip").await.unwrap().1;
        assert_eq!(killed, "killed ip; generation 2 serves after 812 us");
        let blocked = commands.run("chaos block ip").await.unwrap().1;
        assert_eq!(blocked, "blocked ip; generation 3 serves after 900 us, noticed after 165000 us");
        let pair = commands.run("chaos kill ip then hang names 7").await.unwrap().1;
        assert_eq!(pair, "ip is killed in 100 ms, names is hung 7 ms later");
        assert!(commands.run("chaos kill ip then hang ip 8").await.unwrap_err().contains("no component ip"));
        assert!(commands.run("chaos fault tcp").await.unwrap_err().contains("not restarted"));
        assert!(commands.run("chaos fault xyz").await.unwrap_err().contains("no component xyz"));
        assert_eq!(
            commands.resume("chaos kill console").await.unwrap().1,
            "killed console; generation 2 serves after 900 us"
        );
        assert!(commands.resume("chaos kill ip").await.unwrap_err().contains("restarted meanwhile"));
        let (lines, last) = commands.run("cores").await.unwrap();
        assert_eq!((lines.len(), last.as_str()), (4, "4 cores"));
        assert!(lines[0].contains("28 KiB free; ram 1, domain 2"));
        assert!(words(&lines[0]).starts_with("core 0 monitor claimed by nobody programs 1234 us"));
        assert_eq!(words(&lines[1]), "core 1 kernel core claimed by webd programs 0 us");
        assert_eq!(words(&lines[2]), "core 2 program claimed by webd programs 42 us");
        assert_eq!(words(&lines[3]), "core 3 halted claimed by monitor programs 9 us");
        assert_eq!(commands.run("core 2 halt").await.unwrap().1, "core 2 is halted");
        assert_eq!(commands.run("core 2 run").await.unwrap().1, "core 2 runs");
        assert!(commands.run("core 0 halt").await.unwrap_err().contains("no core 0"));
        assert!(commands.run("core 1 halt").await.unwrap_err().contains("in use"));
        let (lines, last) = commands.run("acct").await.unwrap();
        let expected = [
            "core 0 9 us: domains 3 us,",
            "disk 3 us, paid by client 3 us",
            "4 us, done for client 2 us, no task 1 us, itself 0 us",
            "client 3 us, paid by itself 3 us",
            "core 2 9 us:",
        ];
        assert_eq!((lines.len(), last.as_str()), (expected.len(), "2 cores"));
        assert!(lines.iter().zip(expected).all(|(line, begin)| words(line).starts_with(begin)), "{lines:?}");
        let (lines, last) = commands.run("names crew").await.unwrap();
        assert_eq!(
            lines.iter().map(|line| words(line)).collect::<Vec<_>>(),
            ["crew-2 core 2 generation 4", "crew-3 core 3 generation 4"]
        );
        assert_eq!(last, "2 serve crew; this core's name cache: 5 hits, 3 misses, 1 dropped");
        assert!(commands.run("names nobody").await.unwrap().1.starts_with("0 serve nobody;"));
        assert!(commands.run("names away").await.unwrap_err().contains("does not answer"));
        assert_eq!(commands.run("poweroff").await.unwrap_err(), "not here");
    });
}

#[test]
fn a_silent_or_missing_supervisor_is_an_answer() {
    runtime::testing::run(async {
        let before = runtime::now_ns();
        assert_eq!(commands(true).run("chaos hang ip").await.unwrap_err(), "the supervisor does not answer");
        assert!((LIMIT_NS..LIMIT_NS + 1_000_000_000).contains(&(runtime::now_ns() - before)));
        assert!(commands(false).run("components").await.unwrap_err().contains("no channel"));
        assert!(commands(false).run("names crew").await.unwrap_err().contains("no channel"));
    });
}

/// What a command is answered when the supervisor is started again over it.
async fn when_the_supervisor_restarts(line: &str) -> Answer {
    let [client, first, second, monitor] = channel::loopback_memory(Layout::default());
    let serve = |memory| serve_supervisor(Rc::new(Fake), ServerChannel::new(channel::loopback_wiring(memory, false)));
    let life = runtime::spawn(serve(first));
    let supervisor = SupervisorClient::new(ClientChannel::new(channel::loopback_wiring(client, true)));
    let commands = Commands { supervisor: Box::new(move || Some(supervisor.clone())), ..commands(false) };
    runtime::spawn(async move {
        runtime::sleep(1_000_000).await;
        runtime::abort(life);
        monitor.raise_generation();
        serve(second).await;
    });
    commands.run(line).await
}

#[test]
fn a_supervisor_that_was_to_break_itself_is_asked_who_serves_now() {
    let broken = runtime::testing::run(when_the_supervisor_restarts("chaos kill supervisor"));
    assert_eq!(broken.unwrap().1, "killed supervisor; generation 2 serves");
    let meanwhile = runtime::testing::run(when_the_supervisor_restarts("chaos hang disk"));
    assert!(meanwhile.unwrap_err().starts_with("the supervisor does not answer"));
}

#[test]
fn requests_are_answered_in_order_and_then_kept_no_more() {
    runtime::testing::run(async {
        let (console, line, states) = console();
        runtime::spawn(Rc::new(commands(true)).answer_requests(console.clone()));
        runtime::sleep(1_000_000).await;
        console.receive(&[b"\x1e", [b'x'; 300].as_slice(), b"\n\x1e help\n\x1e core 1 halt\n"].concat());
        console.receive(b"\x1e chaos kill ip\n");
        runtime::sleep(1_000_000).await;
        let answered = String::from_utf8(line.take()).unwrap();
        let lines: Vec<_> = answered.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines.iter().all(|line| line.starts_with("\x1e ")));
        let last = |begin: &str| lines.iter().position(|line| line.starts_with(begin)).unwrap();
        assert_eq!(last("\x1e error the request is too long or no text"), 0);
        assert_eq!(last("\x1e ok that is all"), 1 + HELP.len());
        assert_eq!(last("\x1e error core 1 is in use"), 2 + HELP.len());
        assert_eq!(last("\x1e ok killed ip; generation 2"), 3 + HELP.len());
        assert_eq!(states.borrow().last().unwrap().request, Request::NONE);
    });
}

#[test]
fn a_request_of_which_a_predecessor_died_is_answered_first() {
    runtime::testing::run(async {
        let request = Request::new(Progress::UnderWay, b" chaos kill console");
        let (console, line, states) = console_in(Kept { request, ..state() });
        runtime::spawn(Rc::new(commands(true)).answer_requests(console.clone()));
        console.receive(b"\x1e cores\n");
        runtime::sleep(1_000_000).await;
        let answered = String::from_utf8(line.take()).unwrap();
        let lines: Vec<_> = answered.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "\x1e ok killed console; generation 2 serves after 900 us");
        assert_eq!(lines.last(), Some(&"\x1e ok 4 cores"));
        assert_eq!(states.borrow().last().unwrap().request, Request::NONE);
    });
}

#[test]
fn a_person_is_answered_at_the_terminal() {
    runtime::testing::run(async {
        let (console, line, _) = console();
        runtime::spawn(Rc::new(commands(true)).answer_person(console.clone()));
        console.receive(b"\n \n  core 2 run \nhlep\n");
        line.take();
        runtime::sleep(1_000_000).await;
        assert_eq!(line.take(), b"core 2 runs\r\nno such command; help lists them\r\n");
        console.receive(b"names crew\n");
        line.take();
        runtime::sleep(1_000_000).await;
        let answered = String::from_utf8(line.take()).unwrap();
        assert_eq!(answered.lines().count(), 3);
        assert!(answered.ends_with("1 dropped\r\n"));
    });
}

/// Puts nothing away, is done at once, or fails.
enum Storage {
    Silent,
    Done(Rc<Cell<u32>>),
    Broken,
}

impl StorageServer for Storage {
    async fn close(&self, _: &Peer) -> Result<(), StorageError> {
        match self {
            Storage::Silent => pending().await,
            Storage::Done(times) => times.set(times.get() + 1),
            Storage::Broken => return Err(StorageError::Io),
        }
        Ok(())
    }
}

#[test]
fn what_keeps_data_is_asked_before_the_machine_ends() {
    let storage = |name: &str, storage: Storage| {
        let (client, server) = channel::loopback(Layout::default());
        runtime::spawn(serve_storage(Rc::new(storage), server));
        (name.to_string(), StorageClient::new(client))
    };
    runtime::testing::run(async move {
        let times = Rc::new(Cell::new(0));
        let done = vec![storage("a", Storage::Done(times.clone())), storage("b", Storage::Done(times.clone()))];
        assert!(put_away(done.clone()).await.is_empty());
        assert_eq!(times.get(), 2);
        let told = put_away(vec![storage("a", Storage::Broken), done[0].clone()]).await;
        assert!(told.len() == 1 && told[0].ends_with("a says Server(Io)"), "{told:?}");
        assert_eq!(times.get(), 3);
        // The limit is that of all together.
        let before_ns = runtime::now_ns();
        let told = put_away(vec![storage("a", Storage::Silent), storage("b", Storage::Silent)]).await;
        assert!(told.len() == 2 && told[1].contains("b did not put it away within 5 s"), "{told:?}");
        assert!((CLOSE_LIMIT_NS..CLOSE_LIMIT_NS + 1_000_000_000).contains(&(runtime::now_ns() - before_ns)));
        // So at the command.
        let commands = Commands { storages: Box::new(move || done.clone()), ..commands(false) };
        assert_eq!(commands.run("poweroff").await.unwrap_err(), "not here");
        assert_eq!(times.get(), 5);
    });
}
