//! Tier 3: a person at the serial console: busybox's shell with line editing, job control and the
//! common programs.
//!
//! One boot for all of it. Whatever is waited for is spelt so that the echo of the typed line
//! cannot pass for it (`$((3*7))` for 21).

use crate::host::child;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::recovery::content;
use anyhow::{Context, Result, bail, ensure};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SMALL_BYTES: usize = 4 << 20;
const LARGE_BYTES: usize = 32 << 20;

const BACKSPACE: &str = "\x7f";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_U: &str = "\x15";
const CTRL_Z: &str = "\x1a";
const TAB: &str = "\t";

/// Is a process stopped? Without a program, which a loop would start over and over.
const IS_STOPPED: &str =
    "is_stopped() { read -r line < /proc/$1/stat; case \"$line\" in *') T '*) ;; *) false;; esac; }";

pub fn scenarios() -> Vec<Scenario> {
    [1, 2].map(|cpus| Scenario::shared(3, format!("shell/{cpus}"), move |bench| sit(bench, cpus))).into()
}

fn sit(bench: &Bench, cpus: u32) -> Result<()> {
    let large = content(LARGE_BYTES);
    let small = large[..SMALL_BYTES].to_vec();
    let sums = [md5sum(&small)?, md5sum(&large)?];
    let guest = bench.boot(MachineType::Q35, cpus, &["busybox", "sh"], |root, machine: &mut Machine| {
        machine.memory_bytes += 4 * (LARGE_BYTES + SMALL_BYTES) as u64;
        root.file("root/data/small", 0o644, small);
        root.file("root/data/large", 0o644, large);
        Ok(())
    })?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", LIMIT)?;
        let mut shell = Shell::new(guest);
        language(&mut shell).context("the shell's language")?;
        editing(&mut shell).context("line editing")?;
        jobs(&mut shell).context("job control")?;
        programs(&mut shell, &sums).context("programs")?;
        control(&mut shell).context("control requests")?;
        // The end of input at the prompt is the shell's end, with the status of what it ran last.
        // It is at the prompt when it lists.
        shell.type_keys(&format!("(exit 6)\necho /tmp/g{TAB}{TAB}"))?;
        shell.expect("g3")?;
        shell.type_keys(&format!("{CTRL_U}{CTRL_D}"))?;
        let status = shell.guest.finish(LIMIT)?;
        ensure!(status == 6, "the shell ended with {status} instead of 6");
        Ok(())
    })
}

/// A shell at the guest's console.
pub struct Shell<'guest> {
    guest: &'guest mut Guest,
    lines: u32,
}

impl Shell<'_> {
    pub fn new(guest: &mut Guest) -> Shell<'_> {
        Shell { guest, lines: 0 }
    }

    pub fn type_keys(&self, keys: &str) -> Result<()> {
        ensure!(self.guest.input().send(keys.as_bytes()), "the guest is gone");
        Ok(())
    }

    pub fn expect(&mut self, words: &str) -> Result<String> {
        self.guest.expect(words, LIMIT)
    }

    /// Types a command and waits until it is done: what must come, in this order, and the status
    /// after it.
    pub fn run(&mut self, command: &str, status: u32, expect: &[&str]) -> Result<()> {
        self.lines += 1;
        let number = self.lines;
        self.type_keys(&format!("{command}\n"))?;
        let problem = || format!("after `{command}`");
        for words in expect {
            self.expect(words).with_context(problem)?;
        }
        self.type_keys(&format!("echo \"<$?> end $(({number}*7))\"\n"))?;
        let end = format!("> end {}", number * 7);
        let line = self.expect(&end).with_context(problem)?;
        let told = line.rsplit('<').next().and_then(|rest| rest.split('>').next()).unwrap_or_default();
        ensure!(told == status.to_string(), "`{command}`: status {told} instead of {status}");
        Ok(())
    }

    /// Types a command that stays in the foreground and says `words` when keys may be typed at it.
    fn begin(&mut self, command: &str, words: &str) -> Result<()> {
        self.type_keys(&format!("{command}\n"))?;
        self.expect(words).map(drop).with_context(|| format!("`{command}` does not begin"))
    }
}

fn language(shell: &mut Shell) -> Result<()> {
    shell.run("false", 1, &[])?;
    shell.run("sh -c 'exit 42'", 42, &[])?;
    shell.run("no-such-program", 127, &["not found"])?;
    shell.run("cat <<END\nhere $((4+4))\nEND", 0, &["here 8"])?;
    shell.run("seq 1 1000 | grep 7 | wc -l", 0, &["271"])?;
    shell.run(
        "echo 1 > /tmp/a; echo 2 >> /tmp/a; ls /none 2>> /tmp/a; echo \"lines:$(wc -l < /tmp/a)\"",
        0,
        &["lines:3"],
    )?;
    shell.run("cd /tmp; touch g1 g2 g3; echo g[13]; cd /", 0, &["g1 g3"])?;
    shell.run("echo \"sum $(expr 40 + 2) $(uname)\"", 0, &["sum 42 Linux"])?;
    shell.run("trap 'echo trap\"\"ped' USR1; kill -USR1 $$; trap - USR1", 0, &["trapped"])?;
    // A loop that makes only calls its proxy answers alone hears signals, again and again.
    let counts = "sh -c 'n=0; trap \"n=\\$((n+1))\" USR1; : > /tmp/on; until [ $n -ge 20 ]; do umask 22; done; rm /tmp/on; exit 7'";
    let sends = "until [ -e /tmp/on ]; do :; done; while [ -e /tmp/on ]; do kill -USR1 $!; done; wait $!";
    shell.run(&format!("{counts} & {sends}"), 7, &[])?;
    shell.run("(exit 3) & wait $!", 3, &[])?;
    shell.run("for i in 1 2 3; do echo $((i*i)); done | tr '\\n' ,; echo", 0, &["1,4,9,"])
}

fn editing(shell: &mut Shell) -> Result<()> {
    // The shell edits for itself, key by key; cat leaves it to the console.
    shell.run(&format!("echo abX{BACKSPACE}c$((1+1))"), 0, &["abc2"])?;
    shell.begin("sh -c 'echo ready$((1*1)); exec cat > /tmp/typed'", "ready1")?;
    shell.type_keys(&format!("wrong{CTRL_U}right?{BACKSPACE}!\n{CTRL_D}"))?;
    shell.run("cat /tmp/typed", 0, &["right!"])?;
    shell.run("wc -c < /tmp/typed", 0, &["7"])
}

fn jobs(shell: &mut Shell) -> Result<()> {
    shell.begin("sh -c 'echo ready$((2*1)); exec sleep 100'", "ready2")?;
    shell.type_keys(CTRL_C)?;
    shell.run("(exit $?)", 130, &[])?;

    shell.run("sleep 10$((0*1)) &", 0, &[])?;
    shell.run("jobs", 0, &["Running"])?;
    // Until then it is the shell's child, with the shell's words.
    shell.run("until ps | grep -q 'sleep 10[0]'; do sleep 0.1; done", 0, &[])?;
    shell.run("ps", 0, &["sh", "sleep 100"])?;
    shell.run("kill %1; wait %1", 143, &[])?;

    // It says so itself when it is continued, since the echo of `fg` says nothing.
    let long = "sh -c 'trap \"echo con\"tinued CONT; echo ready$((3*1)); while :; do sleep 0.1; done'";
    shell.begin(long, "ready3")?;
    shell.type_keys(CTRL_Z)?;
    shell.expect("Stopped")?;
    shell.run("jobs", 0, &["Stopped"])?;
    shell.run("bg", 0, &["continued"])?;
    shell.run("jobs", 0, &["Running"])?;
    shell.run(IS_STOPPED, 0, &[])?;
    shell.run(
        "jobs -p > /tmp/job; read -r job < /tmp/job; kill -STOP %1; until is_stopped $job; do :; done",
        0,
        &[],
    )?;
    shell.run("jobs", 0, &["Stopped"])?;
    shell.begin("fg", "continued")?;
    shell.type_keys(CTRL_C)?;
    shell.run("(exit $?)", 130, &[])?;

    // One of the background may not read what is typed.
    shell.run("cat & until is_stopped $!; do :; done", 0, &[])?;
    shell.run("jobs", 0, &["Stopped (tty input)"])?;
    shell.run("kill -9 %1; wait %1", 137, &[])
}

fn programs(shell: &mut Shell, sums: &[String; 2]) -> Result<()> {
    let [small, large] = sums;
    shell.run("md5sum /data/small", 0, &[small])?;
    shell.run("md5sum /data/large", 0, &[large])?;
    shell.run("ls -l /data", 0, &["33554432", "4194304"])?;
    shell.run("find / -name 'sma[l]l' | sort", 0, &["/data/small"])?;
    shell.run("printf '3\\n1\\n2\\n' | sort -r | tr -d '\\n'; echo", 0, &["321"])?;
    shell.run("echo a1b2 | sed 's/[0-9]/-/g'", 0, &["a-b-"])?;
    shell.run("seq 1 9 | awk '{ sum += $1 } END { print \"sum\", sum }'", 0, &["sum 45"])?;
    shell.run("grep -c root /etc/passwd", 0, &["1"])?;
    shell.run("tar czf /tmp/t.tgz data/small && mkdir /tmp/x && tar xzf /tmp/t.tgz -C /tmp/x", 0, &[])?;
    shell.run("cmp /tmp/x/data/small /data/small", 0, &[])?;
    shell.run("gzip -c /data/small | gunzip | md5sum", 0, &[small])?;
    shell.run("df /", 0, &["% /"])
}

/// A request in the middle of a line that is being typed is answered, and the line goes on.
fn control(shell: &mut Shell) -> Result<()> {
    // The shell lists what fits, so it has read the keys: what nobody has read dies with a console.
    shell.type_keys(&format!("echo /tmp/g{TAB}{TAB}"))?;
    shell.expect("g3")?;
    // The console answers for its own end, and the shell's read goes on at its successor.
    for request in ["help", "chaos kill names", "chaos kill console"] {
        let reply = shell.guest.control(request, Duration::from_secs(5))?;
        ensure!(reply.starts_with("ok "), "{request}: {reply}");
    }
    shell.run("2 ha$((2*4))", 0, &["/tmp/g2 ha8"])
}

/// As this machine's own md5sum has it.
fn md5sum(data: &[u8]) -> Result<String> {
    let mut md5sum = Command::new("md5sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run md5sum; install it, for instance: apt-get install coreutils")?;
    let mut input = md5sum.stdin.take().context("md5sum has no input")?;
    input.write_all(data).context("md5sum takes no input")?;
    drop(input);
    let output = child::finish(md5sum, "md5sum", child::SHORT)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.split_whitespace().next() {
        Some(sum) if sum.len() == 32 => Ok(sum.to_owned()),
        _ => bail!("md5sum says `{}`", text.trim()),
    }
}
