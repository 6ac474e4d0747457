//! Tier 4: what a program does past its proxy, by the kernel's own calls, or with forks of its own,
//! takes no more of its neighbours' time than a plain loop: a request to a web server takes at most
//! twice as long.
//!
//! Both are measured in one boot, one after the other, so that the host's speed is the same.

use crate::host::late::late;
use crate::host::port;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::bad_program::{self, PAGE};
use crate::test::scenarios::web;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// What a fork may take beside hundreds of its like.
const FORK_LIMIT: Duration = Duration::from_secs(1);
/// Requests of which the median counts, and how often they are made at most: the best time counts,
/// as what else the host does comes and goes. Beside the neighbour one that is good enough will do.
const REQUESTS: usize = 15;
const ROUNDS: usize = 3;
/// How much longer they may take than beside a loop.
const FACTOR: u32 = 2;
const LOOPS: &str = "the loop starts";
const STARTS: &str = "the neighbour starts";

struct Case {
    name: &'static str,
    /// If not 0, the first program becomes it, with so many forks that compute, or three quarters
    /// of them where memory is short. The server, which the first program started, was such a fork
    /// before its exec.
    forks: usize,
    /// Contexts that it makes first, as many as it may, with the best time that it may give, in
    /// slices of a second.
    contexts: usize,
    /// What they do; `0`: they are not started.
    entry: &'static str,
    /// What it does then.
    body: &'static str,
}

/// A context that waits until somebody notifies it, with deadlines around 2^63 and near 2^64.
const SLEEPS: &str = r#"
    __asm__ volatile("jmp 3f\n.globl sleeps\nsleeps:\n"
        "movabs $0x100000049, %rax; movabs $0x8000000000000000, %rdi; syscall\n"
        "movabs $0x100000049, %rax; movabs $0x7fffffffffffffff, %rdi; syscall\n"
        "movabs $0x100000049, %rax; movabs $0xfffffffffffffffe, %rdi; syscall\n"
        "jmp sleeps\n3:");"#;

const CASES: [Case; 10] = [
    Case { name: "first", forks: 50, contexts: 0, entry: "spin", body: "for (;;);" },
    // 2,000 do not fit: a program and what it forked are 420 processes at most (docs/limits.md),
    // and fewer if they would not leave as much memory as they take.
    Case { name: "first-400", forks: 400, contexts: 0, entry: "spin", body: "for (;;);" },
    Case { name: "context", forks: 0, contexts: 1, entry: "spin", body: "for (;;);" },
    Case { name: "contexts-20", forks: 0, contexts: 20, entry: "spin", body: "for (;;);" },
    Case { name: "contexts-2000", forks: 0, contexts: 2000, entry: "spin", body: "for (;;);" },
    // Watches of 1 ns, and of what is allowed, on contexts that never take what they were told.
    Case {
        name: "watch",
        forks: 0,
        contexts: 20,
        entry: "spin",
        body: r#"
    for (;;) for (long n = 0; n < made; n++) {
        if (!native(62, contexts[n], 1, 4, 0, 0, 0)) leave(3);
        if (native(62, contexts[n], 100000000, 4, 0, 0, 0)) leave(4);
        if (native(72, bells[n], 0, 0, 0, 0, 0)) leave(5);
    }"#,
    },
    // Contexts that wait to be probed for ever cost nobody but their program.
    Case {
        name: "watch-2000",
        forks: 0,
        contexts: 2000,
        entry: "0",
        body: r#"
    for (long n = 0; n < made; n++) {
        if (native(62, contexts[n], 100000000, 4, 0, 0, 0)) leave(4);
        if (native(72, bells[n], 0, 0, 0, 0, 0)) leave(5);
    }
    for (;;) call(34, 0, 0, 0, 0, 0, 0);"#,
    },
    Case {
        name: "deadlines",
        forks: 0,
        contexts: 20,
        entry: "sleeps",
        body: "for (;;) for (long n = 0; n < made; n++) native(72, bells[n], 0, 0, 0, 0, 0);",
    },
    Case {
        name: "refills",
        forks: 0,
        contexts: 20,
        entry: "spin",
        body: "for (;;) for (long n = 0; n < made; n++) native(67, schedules[n], 1000000, 0, 0, 0, 0);",
    },
    // Each call but those that end the caller or take away what it is, with all that it holds. It
    // may hit its own memory all the same: then the shell starts another.
    Case {
        name: "calls",
        forks: 0,
        contexts: 0,
        entry: "spin",
        body: r#"
    static const short spared[] = { 1, 10, 12, 20, 43, 44, 59, 61, 64, 65 };
    for (;;) for (long call = 0; call < 220; call++) {
        int skip = 0;
        for (unsigned i = 0; i < sizeof spared / sizeof *spared; i++) skip |= spared[i] == call;
        for (long slot = 0; !skip && slot < 128; slot++) {
            native(call, slot, slot, slot, slot, slot, slot);
            native(call, slot, 3, 0x600000000000, 1, 1, 1);
            native(call, 3, slot, 1, 1l << 63, -1, 0);
        }
    }"#,
    },
];

pub fn scenarios() -> Vec<Scenario> {
    let matrix = CASES.iter().flat_map(|case| [1, 2].map(|cpus| (case, cpus)));
    matrix
        .map(|(case, cpus)| {
            Scenario::alone(4, format!("bad-neighbour/{}/{cpus}", case.name), move |bench| check(bench, case, cpus))
                // Twenty contexts are one, too.
                .by_night(cpus == 1 && case.forks == 0 || case.contexts == 1 || case.forks > 100)
        })
        .collect()
}

fn program(case: &Case) -> Result<Vec<u8>> {
    let Case { forks, contexts, entry, body, .. } = case;
    let (least, forks_least) = ((*contexts).min(500), forks / 4 * 3);
    bad_program::compile(&format!(
        r#"{SLEEPS}
    extern char sleeps[];
    static long contexts[2000], bells[2000], schedules[2000];
    long made = 0;
    for (; made < {contexts}; made++) {{
        if (native(56, 3, 1, 0x600000000000 + made * 4096, 0, 0, 0)) break;
        contexts[made] = got;
        if (native(9, contexts[made], 32, 1, 0, 0, 0)) break;
        bells[made] = got;
        long priority = 7;
        while (native(57, 3, contexts[made], priority, 1000000, 0, 0)) if (--priority < 0) leave(1);
        schedules[made] = got;
    }}
    if (made < {least}) leave(2);
    for (long n = 0; n < {forks}; n++) {{
        long child = call(57, 0, 0, 0, 0, 0, 0);
        if (child < 0 && n >= {forks_least}) break;
        if (child < 0) leave(3);
        if (child == 0) for (;;);
    }}
    say("{STARTS}\n", {});
    for (long n = 0; (long){entry} && n < made; n++) native(58, contexts[n], (long){entry}, 0, 0, 0, 0);
    {body}"#,
        STARTS.len() + 1
    ))
}

fn check(bench: &Bench, case: &Case, cpus: u32) -> Result<()> {
    let (bad, plain) =
        (program(case)?, bad_program::compile(&format!("say(\"{LOOPS}\\n\", {}); for (;;);", LOOPS.len() + 1))?);
    let port = port::free()?;
    let starts = if case.forks > 0 { "exec /bad" } else { "while :; do /bad; done" };
    let script = format!("httpd -f -p 80 -h /www & /loop & loop=$!; read line; kill -9 $loop; {starts}");
    let programs = vec![("root/bad", bad), ("root/loop", plain)];
    let guest = bad_program::boot_beside_server(bench, cpus, &script, port, programs)?;
    let address = format!("http://127.0.0.1:{port}/page");
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        guest.heard(LOOPS, LIMIT)?;
        // The server may be starting still.
        web::fetch(&guest.liveness(), &address, LIMIT)?;
        let beside_loop = (0..ROUNDS).map(|_| median(&address)).collect::<Result<Vec<_>>>()?;
        guest.input().send(b"go on\n");
        // Each fork has one more beside it that computes, and waits for its turn some ten times.
        guest.heard(STARTS, LIMIT + FORK_LIMIT * case.forks as u32)?;
        let least = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
        let (plain, mut beside_bad) = (least(&beside_loop), Vec::new());
        while beside_bad.len() < ROUNDS && (beside_bad.is_empty() || least(&beside_bad) > plain * FACTOR) {
            beside_bad.push(median(&address)?);
        }
        let bad = least(&beside_bad);
        println!("     {}/{cpus}: a request takes {plain:.1?} beside a loop, {bad:.1?} beside it", case.name);
        if bad > plain * FACTOR {
            let told = format!("a request takes {beside_loop:.1?} beside a loop and {beside_bad:.1?} beside it");
            return Err(late(told, &guest.transcript));
        }
        Ok(())
    })
}

/// How long a request takes.
fn median(address: &str) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        let got = web::fetch_once(address, LIMIT).context("a request beside it")?;
        times.push(begun.elapsed());
        ensure!(got == PAGE, "another page came");
    }
    times.sort();
    Ok(times[REQUESTS / 2])
}
