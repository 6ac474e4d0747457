//! Tier 4: killed processes leave nothing behind, whatever they were doing, and are gone when their
//! parent has waited for them.

use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::{bad_program, web};
use anyhow::{Context, Result, bail, ensure};
use std::time::{Duration, Instant};

/// A group is made and killed in about a second of a quiet host.
const ROUND_LIMIT: Duration = Duration::from_secs(120);
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
/// What the servers have to do when the last process has ended.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// What has not changed for so long, and was looked at so often meanwhile, has ended: servers give
/// back within a second, and a heap that has grown never shrinks. The looks tell a machine that did
/// not run at all.
const STEADY: Duration = Duration::from_secs(5);
const STEADY_LOOKS: usize = 20;
const MEMORY_BYTES: u64 = 1 << 30;
/// Some 2 s each at 2 cores, where 200 are killed: what is left behind by one process in a hundred
/// needs many to show.
const ROUNDS: usize = 2;
const NIGHTLY_ROUNDS: usize = 1000;
/// What servers' heaps may grow by in all rounds together: a page for some twenty-five processes
/// killed in a plain run, and for fifteen hundred in a nightly one.
const HEAPS_KIB_MAX: u64 = 64;
const NIGHTLY_HEAPS_KIB_MAX: u64 = 512;
/// After so many rounds servers have what they keep. Before them comes one of 200 processes: it
/// fills the sets of channels that spawn keeps for later processes.
const WARM_ROUNDS: usize = 3;
/// How often all rounds are run before it counts that heaps have grown: a heap is as large as it
/// was ever needed, which on a busy host may come late, but what leaks makes it grow each time.
const TIMES: usize = 3;

/// The first program: at each line it reads it makes a group, kills it and waits for all of it.
const GROUPS: &str = r#"
    int fd[2];
    char byte, line[64];
    for (;;) {
        if (call(0, 0, line, sizeof line, 0, 0, 0) <= 0) leave(1);
        int makers = line[0] == 'f', members = makers ? 8 : 200, ended = 0;
        call(22, fd, 0, 0, 0, 0, 0);
        long leader = call(57, 0, 0, 0, 0, 0, 0);
        if (leader == 0) {
            call(109, 0, 0, 0, 0, 0, 0);
            for (int i = 0; i < members - 1; i++)
                if (call(57, 0, 0, 0, 0, 0, 0) == 0) {
                    call(1, fd[1], "x", 1, 0, 0, 0);
                    /* A maker has its children end, one after another, while it is killed. */
                    while (makers && call(57, 0, 0, 0, 0, 0, 0) != 0) {
                        call(1, fd[1], "x", 1, 0, 0, 0);
                        call(61, -1, 0, 0, 0, 0, 0);
                    }
                    if (makers) leave(0);
                    for (;;) call(34, 0, 0, 0, 0, 0, 0);
                }
            call(1, fd[1], "x", 1, 0, 0, 0);
            for (;;) call(34, 0, 0, 0, 0, 0, 0);
        }
        for (int i = 0; i < (makers ? 40 + line[1] - '0' : members); i++)
            if (call(0, fd[0], &byte, 1, 0, 0, 0) != 1) leave(2);
        if (call(62, -leader, 9, 0, 0, 0, 0) != 0) leave(3);
        int status;
        while (call(61, -1, &status, 0, 0, 0, 0) > 0) {
            ended++;
            if ((status & 0x7f) != 9 && !makers) leave(4);
        }
        if (!makers && ended != members) leave(5);
        call(3, fd[0], 0, 0, 0, 0, 0);
        call(3, fd[1], 0, 0, 0, 0, 0);
        call(1, 1, "all have ended\n", 15, 0, 0, 0);
    }"#;

/// The first program: a child listens, is killed and waited for, and its port is free.
const PORTS: &str = r#"
    struct { unsigned short family, port; unsigned address; char rest[8]; } at = { 2, 0x901f, 0, { 0 } };
    int fd[2], one = 1;
    char byte;
    for (int round = 0; round < 200; round++) {
        call(22, fd, 0, 0, 0, 0, 0);
        long child = call(57, 0, 0, 0, 0, 0, 0);
        if (child == 0) {
            long s = call(41, 2, 1, 0, 0, 0, 0);
            long bound = call(49, s, &at, 16, 0, 0, 0);
            call(50, s, 8, 0, 0, 0, 0);
            call(1, fd[1], bound == 0 ? "y" : "n", 1, 0, 0, 0);
            for (;;) call(34, 0, 0, 0, 0, 0, 0);
        }
        call(0, fd[0], &byte, 1, 0, 0, 0);
        if (byte != 'y') leave(2);
        call(62, child, 9, 0, 0, 0, 0);
        if (call(61, child, 0, 0, 0, 0, 0) != child) leave(3);
        long s = call(41, 2, 1, 0, 0, 0, 0);
        if (call(49, s, &at, 16, 0, 0, 0) != 0) leave(4);
        call(3, s, 0, 0, 0, 0, 0);
        call(3, fd[0], 0, 0, 0, 0, 0);
        call(3, fd[1], 0, 0, 0, 0, 0);
    }
    leave(0);"#;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for cpus in [1, 2] {
        for (kind, line) in [("kill", "k"), ("forking", "f")] {
            let name = format!("killed-processes/{kind}/{cpus}");
            let short = move |bench: &Bench| groups(bench, cpus, line, ROUNDS, HEAPS_KIB_MAX);
            // A plain run kills groups of 200 at 2 cores, and on one those that fork.
            all.push(Scenario::shared(4, name, short).by_night(line == "k" && cpus == 1));
            let name = format!("killed-processes/{kind}/{cpus}/long");
            let long = move |bench: &Bench| groups(bench, cpus, line, NIGHTLY_ROUNDS, NIGHTLY_HEAPS_KIB_MAX);
            all.push(Scenario::shared(4, name, long).by_night(true));
        }
        all.push(Scenario::shared(4, format!("killed-processes/ports/{cpus}"), move |bench| ports(bench, cpus)));
    }
    all
}

fn boot(bench: &Bench, cpus: u32, body: &str) -> Result<Guest> {
    let program = bad_program::compile(body)?;
    bench.boot(MachineType::Q35, cpus, &["busybox", "sh", "-c", "exec /groups"], |root, machine: &mut Machine| {
        root.file("root/groups", 0o755, program);
        machine.memory_bytes = MEMORY_BYTES;
        Ok(())
    })
}

/// After all rounds as much is there as after the first ones.
fn groups(bench: &Bench, cpus: u32, line: &str, rounds: usize, heaps_kib_max: u64) -> Result<()> {
    let guest = boot(bench, cpus, GROUPS)?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        let mut number = 0;
        let mut play = |guest: &mut Guest, line, count| {
            for _ in 0..count {
                guest.input().send(format!("{line}{}\n", number % 10).as_bytes());
                guest.expect("all have ended", ROUND_LIMIT).with_context(|| format!("round {number}"))?;
                number += 1;
            }
            anyhow::Ok(())
        };
        play(guest, "k", 1)?;
        play(guest, line, WARM_ROUNDS)?;
        let mut before = settled(guest, |_| true)?;
        for _ in 0..TIMES {
            play(guest, line, rounds)?;
            let after = settled(guest, |now| is_left(&before, now, heaps_kib_max))?;
            if is_left(&before, &after, heaps_kib_max) {
                return Ok(());
            }
            ensure!(
                is_left(&before, &after, u64::MAX),
                "{rounds} rounds left something behind: {after:?} instead of {before:?}"
            );
            println!("     groups: {rounds} rounds made heaps grow: {after:?} instead of {before:?}");
            before = after;
        }
        bail!("heaps grow with each {rounds} rounds: now {before:?}")
    })
}

/// What is there, once it is as wanted and twice the same, or is not and stays so, or when it has
/// had time enough.
pub fn settled(guest: &mut Guest, is_wanted: impl Fn(&[Held]) -> bool) -> Result<Vec<Held>> {
    let begin = Instant::now();
    let (mut since, mut looks) = (begin, 0);
    let mut last = held(guest)?;
    loop {
        let now = held(guest)?;
        looks += 1;
        if now != last {
            (since, looks) = (Instant::now(), 0);
        } else if is_wanted(&now) || (since.elapsed() > STEADY && looks >= STEADY_LOOKS) {
            return Ok(now);
        }
        if begin.elapsed() > SETTLE_LIMIT {
            return Ok(now);
        }
        last = now;
    }
}

/// What a core has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    kibibytes: u64,
    objects: String,
}

/// The same objects, and no more memory than servers' heaps may have grown by.
pub fn is_left(before: &[Held], now: &[Held], heaps_kib_max: u64) -> bool {
    let same = |(before, now): (&Held, &Held)| {
        before.objects == now.objects && now.kibibytes <= before.kibibytes.saturating_add(heaps_kib_max)
    };
    before.len() == now.len() && before.iter().zip(now).all(same)
}

/// Of each core.
pub fn held(guest: &mut Guest) -> Result<Vec<Held>> {
    let lines = guest.control_lines("cores", CONTROL_LIMIT)?;
    lines.iter().map(|line| parse(line).with_context(|| format!("no counts in {line}"))).collect()
}

/// `... us 1234 KiB used 567 KiB free; domain 3, ...`
fn parse(line: &str) -> Option<Held> {
    let (kibibytes, objects) = line.split_once(" us ")?.1.split_once(" KiB used ")?;
    Some(Held { kibibytes: kibibytes.trim().parse().ok()?, objects: objects.split_once(';')?.1.trim().to_owned() })
}

fn ports(bench: &Bench, cpus: u32) -> Result<()> {
    with_console(boot(bench, cpus, PORTS)?, |guest| {
        let status = guest.finish(ROUND_LIMIT)?;
        ensure!(status == 0, "status {status}: 4 is a port that a process has which was waited for");
        Ok(())
    })
}
