//! What programs say in the log.

use super::World;
use super::time::{context, refusal};
use crate::hardware;
use crate::memory::phys_to_virt;
use crate::objects::domain::Death;
use crate::objects::writer::{LogParts, Name, Writer};
use crate::objects::{Domain, Ptr};
use abi::{Call, DeathCause, Error, Handle, Rights, layout};

const NONE: u64 = Handle::NONE.0;

struct Fixture {
    world: World,
    page: *mut u8,
}

/// Where texts go in the control page: behind what the kernel writes there.
const AT: usize = 2048;

impl Fixture {
    fn new() -> Fixture {
        let mut world = World::new(512);
        let domain = world.monitor();
        let mapping = context(domain).domain().range().at(layout::CONTROL_PAGE).unwrap();
        let page = phys_to_virt(mapping.segment().unwrap().base().unwrap());
        world.kernel.decide();
        hardware::set_clock(0);
        Fixture { world, page }
    }

    /// The error of a call whose text is `text`.
    fn call(&mut self, call: Call, text: &[u8], words: impl Fn(u64, u64) -> [u64; 6]) -> u64 {
        // SAFETY: the page of a living context in the world's memory.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), self.page.add(AT), text.len()) };
        self.world.runner_calls(call, words(layout::CONTROL_PAGE + AT as u64, text.len() as u64)).0
    }

    /// A domain of that name, which shares a part of the log or has its own.
    fn made(&mut self, [flags, pcore, log_of]: [u64; 3], name: &[u8]) -> Result<(Handle, Ptr<Domain>), u64> {
        let words = |at, bytes| [Handle::SELF_RAM.0, flags, pcore, at, bytes, log_of];
        let error = self.call(Call::DomainAlloc, name, words);
        let runner = self.world.kernel.scheduler.current().unwrap();
        if error != 0 {
            return Err(error);
        }
        let handle = Handle(runner.with_registers(|registers| registers.rdi));
        let (domain, _): (Ptr<Domain>, _) = runner.domain().share().find(handle, Rights::READ).unwrap();
        Ok((handle, domain))
    }

    fn logs(&mut self, text: &[u8], machine: u64) -> Vec<String> {
        hardware::take_lines();
        assert_eq!(self.call(Call::Log, text, |at, bytes| [at, bytes, machine, 0, 0, 0]), 0);
        hardware::take_lines()
    }
}

/// A terminal obeys nothing that a program says there, and a program cannot answer control requests
/// in the console's name (0x1e). Each line begins with the name of who wrote it.
#[test]
fn lines_have_their_writers_name_and_nothing_obeys_them() {
    let mut fixture = Fixture::new();
    for (text, lines) in [
        (&b"plain \xc3\xa9\xe4\xb8\xad\n\n"[..], &["plain \u{e9}\u{4e2d}"][..]),
        (b"two\n\tlines", &["two", "\tlines"]),
        (b"pelago: ip: up\npelago: 2 cores up\nbt: 0x10 ip", &["pelago: ip: up", "pelago: 2 cores up", "bt: 0x10 ip"]),
        (b"\x1b[2J\x1b]0;x\x07y", &["\\x1b[2J\\x1b]0;x\\x07y"]),
        (b"\r\x1eok done\x08\x7f\0", &["\\x0d\\x1eok done\\x08\\x7f\\x00"]),
        (b"a\xc2\x9b31m", &["a\\x9b31m"]),
        (b"", &[""]),
        (b"\n1\n2\n3\n4\n5\n6\n7\n8", &["", "1", "2", "3", "4", "5", "6", "7\\x0a8"]),
        (b"\xff\x1b\nx", &["\\xff\\x1b", "x"]),
    ] {
        let expected: Vec<String> = lines.iter().map(|line| format!("pelago: test: {line}")).collect();
        assert_eq!(fixture.logs(text, NONE), expected);
    }
}

/// In the machine's name writes who may end the machine, and nobody else.
#[test]
fn the_machines_lines_need_its_power() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.logs(b"ready", Handle::PCORE.0), ["pelago: ready"]);
    let refused = |handle: Handle| move |at, bytes| [at, bytes, handle.0, 0, 0, 0];
    assert_ne!(fixture.call(Call::Log, b"ready", refused(Handle::SELF_DOMAIN)), 0);
    let rights = Rights::READ.union(Rights::CONTROL).0.into();
    let (error, copy) = fixture.world.runner_calls(Call::CapCopy, [Handle::PCORE.0, rights, 0, 0, 0, 0]);
    assert_eq!(error, 0);
    assert_eq!(fixture.call(Call::Log, b"ready", refused(Handle(copy))), refusal(Error::NoRights));
    assert!(hardware::take_lines().iter().all(|line| line != "pelago: ready"));
}

/// A domain's name is its maker's, unless one who holds the core gives another, and no name makes a
/// line look like somebody else's.
#[test]
fn names_come_from_who_holds_the_core() {
    let mut fixture = Fixture::new();
    let mut made = |pcore: u64, name: &[u8]| {
        fixture.made([0, pcore, NONE], name).map(|(_, domain)| domain.writer.name().as_str().to_string())
    };
    assert_eq!(made(NONE, b"supervisor"), Ok("test".into()));
    assert_eq!(made(Handle::PCORE.0, b"supervisor"), Ok("supervisor".into()));
    assert_eq!(made(Handle::PCORE.0, &[b'x'; 32]), Ok("x".repeat(32)));
    for bad in [&b""[..], b"a b", b"a:", b"a\n", b"\xc3\xa9", b"a\0b", &[b'x'; 33]] {
        assert_eq!(made(Handle::PCORE.0, bad), Err(refusal(Error::BadArgument)), "{bad:?}");
    }
    assert!(made(Handle::SELF_DOMAIN.0, b"supervisor").is_err());
}

/// What is written too fast is dropped and counted, and it is told before the next line that is
/// taken, and when the writer ends.
#[test]
fn a_flood_is_counted_and_dropped() {
    const LINES: usize = 10_000;
    let mut fixture = Fixture::new();
    let flood = |fixture: &mut Fixture| (0..LINES).map(|_| fixture.logs(&[b'x'; 100], NONE).len()).sum::<usize>();
    let taken = flood(&mut fixture);
    assert_eq!(taken, (64 << 10) / "pelago: test: \n".len().saturating_add(100));
    hardware::set_clock(1_900_000_000);
    assert!(fixture.logs(b"y", NONE).is_empty(), "too soon");
    hardware::set_clock(2_100_000_000);
    let said =
        format!("pelago: {} messages of test were dropped: it writes more than 16 KiB a second", LINES - taken + 1);
    assert_eq!(fixture.logs(b"y", NONE), [said, "pelago: test: y".into()]);
    assert_eq!(fixture.logs(b"z", NONE), ["pelago: test: z"]);
    let more = flood(&mut fixture);
    // About what 2.1 seconds give.
    assert!((290..=300).contains(&more), "{more}");
    hardware::take_lines();
    fixture.world.runner_calls(Call::DomainExit, [0; 6]);
    assert!(hardware::take_lines().contains(&format!(
        "pelago: {} messages of test were dropped: it writes more than 16 KiB a second",
        LINES - more
    )));
}

/// However many domains a program forks or makes, they write what one may, and their ends say what
/// was dropped once a second at most; nobody else has less for it.
#[test]
fn a_program_and_its_forks_have_one_part_of_the_log() {
    const PROGRAM: u64 = layout::domain::WRITE_EXECUTE;
    const FORKS: usize = 20;
    let mut fixture = Fixture::new();
    let (program, first) = fixture.made([PROGRAM, Handle::PCORE.0, NONE], b"linux-1").unwrap();
    let (_, other) = fixture.made([PROGRAM, Handle::PCORE.0, NONE], b"linux-2").unwrap();
    let forks = (0..FORKS).map(|_| fixture.made([PROGRAM, Handle::PCORE.0, program.0], b"linux-3").unwrap().1);
    let family: Vec<_> = forks.chain([first]).collect();
    let kernel = &mut fixture.world.kernel;
    let mut lines_of = |domain: &Ptr<Domain>, count: usize| {
        (0..count).for_each(|_| domain.writer.write(&mut kernel.log, b"x"));
        hardware::take_lines()
    };
    let taken: usize = family.iter().map(|domain| lines_of(domain, 5).len()).sum();
    assert_eq!(taken, 8);
    assert_eq!(lines_of(&other, 1), ["pelago: linux-2: x"]);
    let ends = |fixture: &mut Fixture, domain| {
        fixture.world.kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
        hardware::take_lines()
    };
    let said = |count: usize| {
        format!("pelago: {count} messages of linux-1 were dropped: it writes more than 2 lines a second")
    };
    hardware::set_clock(1_000_000_000);
    assert_eq!(ends(&mut fixture, family[0]), [said(family.len() * 5 - taken)]);
    (0..5).for_each(|_| family[1].writer.write(&mut fixture.world.kernel.log, b"x"));
    assert_eq!(hardware::take_lines().len(), 2);
    assert_eq!(ends(&mut fixture, family[1]), [""; 0]);
    hardware::set_clock(2_000_000_000);
    assert_eq!(ends(&mut fixture, family[2]), [said(3)]);
    // What one makes by itself shares its maker's, and who has ended shares nothing.
    let (_, own) = fixture.made([PROGRAM, NONE, NONE], b"").unwrap();
    let runner = fixture.world.kernel.scheduler.current().unwrap();
    let flood = |writer: &Writer, log: &mut LogParts| (0..10_000).for_each(|_| writer.write(log, b"x"));
    flood(&own.writer, &mut fixture.world.kernel.log);
    hardware::take_lines();
    runner.domain().writer.write(&mut fixture.world.kernel.log, b"x");
    assert_eq!(hardware::take_lines(), [""; 0]);
    ends(&mut fixture, first);
    let refused = fixture.made([PROGRAM, Handle::PCORE.0, program.0], b"linux-3").err();
    assert_eq!(refused, Some(refusal(Error::PeerDead)));
}

/// More writers than there are parts share the last, and what has ended makes room.
#[test]
fn parts_of_the_log_are_used_again() {
    hardware::set_clock(0);
    let mut parts = LogParts::new();
    let names = |from: usize| (from..from + 40).map(|number| Name::new(format!("{number}").as_bytes()).unwrap());
    for round in 0..3 {
        let writers: Vec<_> = names(round * 40).map(Writer::new).collect();
        for writer in &writers {
            writer.begin(&mut parts, true);
        }
        hardware::take_lines();
        for writer in &writers {
            (0..8).for_each(|_| writer.write(&mut parts, b"x"));
        }
        assert_eq!(hardware::take_lines().len(), 32 * 8);
        writers.iter().for_each(|writer| writer.end(&mut parts));
        let dropped = format!("pelago: {} messages of {}", 8 * 8, round * 40 + 31);
        assert!(hardware::take_lines()[0].starts_with(&dropped));
    }
}
