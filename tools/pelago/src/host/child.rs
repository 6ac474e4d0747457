//! Programs of this machine that are waited for: never without a limit, since one that hangs would
//! hang its caller, and a run of the tests would not say why.

use crate::host::late::late;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Of a program that only looks something up.
pub const SHORT: Duration = Duration::from_secs(60);
/// What a program said last is shown if it does not end.
const TAIL_LINES: usize = 10;

/// Runs a program to its end; both outputs are captured and its input is empty.
pub fn output(command: &mut Command, limit: Duration) -> Result<Output> {
    let name = name(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    finish(child, &name, limit)
}

/// Runs a program to its end with the outputs of this process.
pub fn status(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    let name = name(command);
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    wait(&mut child, &name, limit)
}

/// Waits for the end of `child`, which is killed at the limit; `what` names it.
pub fn wait(child: &mut Child, what: &str, limit: Duration) -> Result<ExitStatus> {
    if !has_ended(child, limit)? {
        return Err(unfinished(child, what, limit, ""));
    }
    child.wait().with_context(|| format!("cannot wait for {what}"))
}

/// As [`wait`], and gathers those of its outputs that are pipes of ours.
pub fn finish(mut child: Child, what: &str, limit: Duration) -> Result<Output> {
    let end = Instant::now() + limit;
    let pipes = [child.stdout.take().map(Pipe::read), child.stderr.take().map(Pipe::read)];
    let is_done = has_ended(&child, limit)?
        // Its own children may hold the pipes.
        && pipes.iter().flatten().all(|pipe| pipe.has_ended(end));
    let [stdout, stderr] = pipes.map(|pipe| pipe.map(Pipe::bytes).unwrap_or_default());
    if !is_done {
        let said = String::from_utf8_lossy(&[&stdout[..], &stderr[..]].concat()).into_owned();
        return Err(unfinished(&mut child, what, limit, &said));
    }
    let status = child.wait().with_context(|| format!("cannot wait for {what}"))?;
    Ok(Output { status, stdout, stderr })
}

fn name(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

fn unfinished(child: &mut Child, what: &str, limit: Duration, said: &str) -> anyhow::Error {
    // Either may fail only because it has ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n    | ");
    let said = if last.is_empty() { String::new() } else { format!("; it said last:\n    | {last}") };
    let seconds = limit.as_secs();
    late(format!("{what} did not end within {seconds} s and was killed; run it alone to see why{said}"), &lines)
}

/// True once it has, false at the limit.
fn has_ended(child: &Child, limit: Duration) -> Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("cannot watch a process")?;
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).context("the limit is too long")?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("cannot wait for a process: {error}"),
        }
    }
}

/// An output that is read by a thread of its own.
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Pipe {
    fn read(mut from: impl Read + Send + 'static) -> Pipe {
        let (bytes, (sender, ended)) = (Arc::new(Mutex::new(Vec::new())), channel());
        let all = bytes.clone();
        std::thread::spawn(move || {
            let mut piece = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                let Ok(mut all) = all.lock() else { return };
                all.extend_from_slice(&piece[..count]);
            }
            // Nobody may wait any more.
            let _ = sender.send(());
        });
        Pipe { bytes, ended }
    }

    fn has_ended(&self, end: Instant) -> bool {
        self.ended.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok()
    }

    fn bytes(self) -> Vec<u8> {
        self.bytes.lock().map(|mut bytes| std::mem::take(&mut *bytes)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::late::Late;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn what_ends_is_captured_whole() {
        let output = output(&mut shell("echo out; echo err >&2; exit 3"), SHORT).unwrap();
        assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(output.status.code(), Some(3));
        assert!(status(&mut shell("exit 0"), SHORT).unwrap().success());
    }

    #[test]
    fn what_does_not_end_is_killed_and_told() {
        // A host that is busy may not even begin within the first of them.
        let told = (0..6).map(|times| 1 << times).find_map(|seconds| {
            let error = output(&mut shell("echo begun; exec sleep 600"), Duration::from_secs(seconds)).unwrap_err();
            assert!(error.is::<Late>());
            let words = error.to_string();
            let start = format!("sh did not end within {seconds} s and was killed; run it alone");
            assert!(words.starts_with(&start), "{words}");
            words.ends_with("it said last:\n    | begun").then_some(())
        });
        told.expect("what it said last is not told");
        // Of its children too, who hold its output.
        let mut child = shell("sleep 7 & exit 0").stdout(Stdio::piped()).spawn().unwrap();
        assert!(has_ended(&child, SHORT).unwrap());
        assert!(wait(&mut child, "it", SHORT).unwrap().success());
    }
}
