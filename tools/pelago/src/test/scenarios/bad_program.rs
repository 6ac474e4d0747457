//! Tier 4: a program that misbehaves harms only itself: a web server beside it keeps answering.
//!
//! The programs are a few lines of C without a library, compiled here: what they do wrong is what
//! they are for.

use crate::host::child;
use crate::host::late::Late;
use crate::host::port;
use crate::host::skip::Skip;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Forward, Machine};
use crate::machine::guest::{Event, Guest};
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use std::process::Command;
use std::time::Duration;

/// A fork bomb beside other work on the host was seen to take half a minute.
const LIMIT: Duration = Duration::from_secs(240);
const FETCHES: usize = 5;
/// What the case *forged-log* writes.
const FLOOD_LINES: u32 = 20_000;
/// What each bad program says first, and the shell when one has ended.
const STARTS: &str = "bad program starts";
const ENDED: &str = "bad program ended: ";
/// What the web server beside them gives.
pub const PAGE: &[u8] = b"still here\n";

/// What every program begins with: system calls as the System V ABI for x86-64 has them, calls of
/// the kernel itself (`abi/src/call.rs`), and where a context may begin that has no stack.
const PRELUDE: &str = r#"
__asm__("spin: movabs $0x100000001, %rax; lea 2f(%rip), %rdi; mov $6, %esi; xor %edx, %edx; syscall\n1: jmp 1b\n2: .ascii \"spins\\n\"");
extern char spin[];
static long got;
static long native(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    n += 0x100000000;
    __asm__ volatile("syscall" : "+a"(n), "+D"(a), "+S"(b), "+d"(c), "+r"(r10), "+r"(r8), "+r"(r9) : : "rcx", "r11", "memory");
    got = a;
    return n;
}
static long call(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return n;
}
static void leave(int status) { for (;;) call(231, status, 0, 0, 0, 0, 0); }
static void say(const char *text, long bytes) { call(1, 1, (long)text, bytes, 0, 0, 0); }
__attribute__((force_align_arg_pointer)) void _start(void) {
"#;

struct Case {
    name: &'static str,
    body: &'static str,
    /// Lines that show that it does what it is for.
    shows: &'static [&'static str],
    ends: Ends,
}

#[derive(Clone, Copy)]
enum Ends {
    /// With the status that the shell shows.
    With(u8),
    /// Somehow: it may have hit its own memory.
    Somehow,
    Never,
}

const CASES: [Case; 11] = [
    Case { name: "null-pointer", body: "*(volatile int *)0 = 1;", shows: &[], ends: Ends::With(139) },
    Case {
        name: "kernel-pointer",
        body: "*(volatile int *)0xffffffff80000000 = 1;",
        shows: &[],
        ends: Ends::With(139),
    },
    Case { name: "bad-instruction", body: "__asm__ volatile(\"ud2\");", shows: &[], ends: Ends::With(132) },
    Case { name: "privileged-instruction", body: "__asm__ volatile(\"cli\");", shows: &[], ends: Ends::With(139) },
    Case {
        name: "no-stack",
        body: "__asm__ volatile(\"mov $8, %rsp; push %rax; 1: jmp 1b\");",
        shows: &[],
        ends: Ends::With(139),
    },
    // Every call but those that end, wait or signal on purpose, with pointers to nothing, to the
    // kernel and to a page's last byte.
    Case {
        name: "wild-pointers",
        body: r#"
    static const long wild[] = { 0, 1, -1, -4096, 0x7fffffffffff, 0x800000000000, 0xffff800000000000, 0xffffffff80000000,
                                 0x70000000, 0x720000100000, 0x10000000, 0x123456789abc };
    static const short spared[] = { 0, 17, 37, 38, 13, 15, 23, 34, 35, 56, 57, 58, 60, 61, 62, 128, 130, 131, 158, 200, 202, 218, 230, 231, 232, 234, 247, 270,
                                    271, 281, 288, 43, 45, 46, 47, 7, 9, 10, 11, 12, 25, 54, 55, 3, 32, 33, 292, 72, 16, 435, 436, 441 };
    for (long n = 0; n < 460; n++) {
        int skip = 0;
        for (unsigned i = 0; i < sizeof spared / sizeof *spared; i++) skip |= spared[i] == n;
        for (unsigned i = 0; !skip && i < sizeof wild / sizeof *wild; i++) {
            long p = wild[i];
            call(n, p, p, p, p, p, p);
            call(n, 1, p, 8, p, 8, p);
        }
    }
    leave(0);"#,
        shows: &[],
        ends: Ends::Somehow,
    },
    // The kernel's own call, past the proxy: a line that looks like the supervisor's, then a flood,
    // and a line after it, before which it is told what was dropped.
    Case {
        name: "forged-log",
        body: r#"
    static const char forged[] = "\npelago: supervisor: tcp restarted\npelago: 9 cores up\n", flood[] = "one of many\n";
    for (int n = 0; n <= 20000; n++) {
        native(1, (long)(n ? flood : forged), n ? sizeof flood - 1 : sizeof forged - 1, 0, 0, 0, 0);
    }
    long pause[2] = { 3, 0 };
    call(35, (long)pause, 0, 0, 0, 0, 0);
    native(1, (long)"the flood is over\n", 18, 0, 0, 0, 0);
    leave(0);"#,
        shows: &[],
        ends: Ends::With(0),
    },
    Case { name: "endless-loop", body: "for (;;) __asm__ volatile(\"\");", shows: &[], ends: Ends::Never },
    Case { name: "fork-bomb", body: "for (;;) call(57, 0, 0, 0, 0, 0, 0);", shows: &[], ends: Ends::Never },
    // As many as there can be, up to 2,000, with the best time it may give, in slices of a second;
    // all compute for ever.
    Case {
        name: "many-contexts",
        body: r#"
    static long contexts[2000];
    long made = 0;
    for (; made < 2000; made++) {
        if (native(56, 3, 1, 0x600000000000 + made * 4096, 0, 0, 0)) break;
        contexts[made] = got;
        long priority = 7;
        while (native(57, 3, contexts[made], priority, 1000000, 0, 0)) if (--priority < 0) leave(1);
    }
    if (made < 500) leave(2);
    say("made many contexts\n", 19);
    for (long n = 0; n < made; n++) native(58, contexts[n], (long)spin, 0, 0, 0, 0);
    for (;;);"#,
        shows: &["made many contexts", ": spins"],
        ends: Ends::Never,
    },
    // They wait for the end of a pipe, which all see at once, and then compute for ever.
    Case {
        name: "many-forks",
        body: r#"
    int ends[2];
    char byte;
    long made = 0, child;
    call(22, (long)ends, 0, 0, 0, 0, 0);
    while ((child = call(57, 0, 0, 0, 0, 0, 0)) > 0) made++;
    call(3, ends[1], 0, 0, 0, 0, 0);
    if (child == 0) {
        call(0, ends[0], (long)&byte, 1, 0, 0, 0);
        for (;;);
    }
    if (made < 20) leave(1);
    say("made many forks\n", 16);
    for (;;);"#,
        shows: &["made many forks"],
        ends: Ends::Never,
    },
];

pub fn scenarios() -> Vec<Scenario> {
    let matrix = CASES.iter().flat_map(|case| [1, 2].map(|cpus| (case, cpus)));
    matrix
        .map(|(case, cpus)| {
            let name = format!("bad-program/{}/{cpus}", case.name);
            let scenario = Scenario::shared(4, name, move |bench| check(bench, case, cpus));
            // It sleeps for 3 s.
            if case.name == "forged-log" { scenario.waiting() } else { scenario }
        })
        .collect()
}

/// Boots a shell with a script that starts a web server for [`PAGE`], on a port of this machine,
/// and bad programs.
pub fn boot_beside_server(
    bench: &Bench,
    cpus: u32,
    script: &str,
    port: u16,
    programs: Vec<(&str, Vec<u8>)>,
) -> Result<Guest> {
    bench.boot(MachineType::Q35, cpus, &["busybox", "sh", "-c", script], |root, machine: &mut Machine| {
        root.file("root/www/page", 0o644, PAGE.to_vec());
        programs.into_iter().for_each(|(path, program)| root.file(path, 0o755, program));
        machine.forwards.push(Forward::local(port, 80));
        Ok(())
    })
}

fn check(bench: &Bench, case: &Case, cpus: u32) -> Result<()> {
    let program = compile(&format!("say(\"{STARTS}\\n\", {});{}", STARTS.len() + 1, case.body))?;
    let port = port::free()?;
    let script = format!("httpd -f -p 80 -h /www & /bad; echo \"{ENDED}$?\"; wait");
    let guest = boot_beside_server(bench, cpus, &script, port, vec![("root/bad", program)])?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        guest.heard(STARTS, LIMIT)?;
        if case.name == "forged-log" {
            check_log(guest)?;
        }
        for line in case.shows {
            guest.heard(line, LIMIT)?;
        }
        match case.ends {
            Ends::With(status) => drop(guest.heard(&format!("{ENDED}{status}"), LIMIT)?),
            Ends::Somehow => drop(guest.heard(ENDED, LIMIT)?),
            Ends::Never => {}
        }
        for number in 1..=FETCHES {
            let got = web::fetch(&guest.liveness(), &format!("http://127.0.0.1:{port}/page"), LIMIT)
                .with_context(|| format!("request {number} beside the bad program"))?;
            ensure!(got == PAGE, "request {number} beside the bad program got another page");
        }
        let ended = guest.transcript.iter().find(|line| line.contains(ENDED));
        ensure!(!matches!(case.ends, Ends::Never) || ended.is_none(), "it was to run for ever: {ended:?}");
        Ok(())
    })
}

/// Lines have their writer's name in front, and those of a flood are counted.
fn check_log(guest: &mut Guest) -> Result<()> {
    for forged in ["pelago: supervisor: tcp restarted", "pelago: 9 cores up"] {
        let line = guest.expect(forged, LIMIT)?;
        let writer = line.strip_prefix("pelago: ").and_then(|line| line.strip_suffix(forged));
        ensure!(writer.is_some_and(|writer| writer.starts_with("linux-")), "nobody can tell who wrote `{line}`");
    }
    // What was taken and what was dropped are all there was.
    let (mut taken, mut dropped) = (0, 0);
    while taken + dropped < FLOOD_LINES {
        let event = guest.next(LIMIT)?.context("the guest ended")?;
        let Event::Line { whole, .. } = event else { continue };
        let counted = whole.strip_prefix("pelago: ").and_then(|line| line.split_once(" messages of linux-"));
        match counted {
            Some((count, _)) => dropped += count.parse::<u32>().context("no number")?,
            None => taken += u32::from(whole.starts_with("pelago: linux-") && whole.ends_with(": one of many")),
        }
        ensure!(!whole.contains(ENDED), "of a flood {taken} lines were taken and {dropped} dropped");
    }
    ensure!(dropped > 0, "a flood was taken whole");
    ensure!(taken + dropped == FLOOD_LINES, "of a flood {taken} lines were taken and {dropped} dropped");
    Ok(())
}

pub fn compile(body: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (source, program) = (folder.path().join("bad.c"), folder.path().join("bad"));
    crate::host::files::write(&source, format!("{PRELUDE}{body}\n}}\n").as_bytes())?;
    let mut compiler = Command::new("cc");
    compiler.args([
        "-O1",
        "-w",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pie",
        "-no-pie",
        "-o",
    ]);
    match child::output(compiler.arg(&program).arg(&source), child::SHORT) {
        Err(error) if error.is::<Late>() => Err(error),
        Err(_) => bail!(Skip::Package { program: "cc", package: "gcc" }),
        Ok(output) if !output.status.success() => {
            bail!("cc: {}", String::from_utf8_lossy(&output.stderr).trim())
        }
        Ok(_) => crate::host::files::read(&program),
    }
}
