//! Requests to a running instance.
//!
//! `run` serves a socket in its instance folder. A client writes one line; `run` sends it to the
//! guest as a control line and gives the guest's lines back, the last of which begins with `ok` or
//! `error`. One request at a time: the serial line has no numbers to tell two replies apart.

use crate::host::place;
use crate::machine::guest::Input;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const SOCKET: &str = "control";
/// Past the guest's own limit for a restart (10 s).
const REPLY_LIMIT: Duration = Duration::from_secs(15);
const REPLY_LATE: &str = "error: the guest did not reply";
/// More lines than any reply has.
const REPLY_LINES_MAX: usize = 1024;

fn is_last(line: &str) -> bool {
    line.starts_with("ok") || line.starts_with("error")
}

/// Sends the request to the running instance whose process is `wanted`, or to the only one, and
/// prints the reply.
pub fn ask(wanted: Option<u32>, request: &str) -> Result<ExitCode> {
    let reply = self::request(wanted, request)?;
    reply.iter().for_each(|line| println!("{line}"));
    let is_ok = reply.last().is_some_and(|line| line.starts_with("ok"));
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends the request and gives the lines of the reply, the last of which begins with `ok` or
/// `error`.
pub fn request(wanted: Option<u32>, request: &str) -> Result<Vec<String>> {
    let mut stream = connect(wanted)?;
    stream.set_read_timeout(Some(2 * REPLY_LIMIT)).context("cannot set a limit")?;
    writeln!(stream, "{request}").context("the running instance does not take the request")?;
    let mut reply = Vec::new();
    for line in BufReader::new(stream).lines() {
        reply.push(line.context("the running instance does not answer")?);
        if reply.last().is_some_and(|line| is_last(line)) {
            return Ok(reply);
        }
    }
    bail!("the running instance ended before it answered")
}

/// True for an instance's folder whose socket nobody serves any more.
pub fn is_abandoned(folder: &Path) -> bool {
    let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    UnixStream::connect(folder.join(SOCKET)).as_ref().is_err_and(refused)
}

fn connect(wanted: Option<u32>) -> Result<UnixStream> {
    let folders = std::fs::read_dir(place::instances())
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>());
    let mut live: Vec<(String, UnixStream)> = Vec::new();
    for folder in folders.unwrap_or_default() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let id = name.split('-').next().unwrap_or_default().to_owned();
        if wanted.is_none_or(|wanted| wanted.to_string() == id)
            && let Ok(stream) = UnixStream::connect(folder.join(SOCKET))
        {
            live.push((id, stream));
        }
    }
    let ids: Vec<_> = live.iter().map(|(id, _)| id.as_str()).collect();
    match ids.len() {
        0 => bail!("no instance is running; start one with: ./pelago run"),
        1 => Ok(live.remove(0).1),
        _ => bail!("several instances run ({}); choose one with --run PID", ids.join(", ")),
    }
}

/// Where the console relay puts the guest's replies.
pub struct Replies(SyncSender<String>);

impl Replies {
    /// Hands over a line of a reply; one that nobody waits for is dropped.
    pub fn deliver(&self, text: String) {
        let _ = self.0.try_send(text);
    }
}

/// Serves the control socket in `folder` until the process ends.
pub fn serve(folder: &Path, input: Input) -> Result<Replies> {
    let path: PathBuf = folder.join(SOCKET);
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let (sender, replies) = sync_channel(REPLY_LINES_MAX);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away harms only itself.
            let _ = answer(stream, &input, &replies);
        }
    });
    Ok(Replies(sender))
}

fn answer(mut stream: UnixStream, input: &Input, replies: &Receiver<String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REPLY_LIMIT))?;
    let mut request = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut request)?;
    // Somebody only looked whether we are there.
    if request.trim().is_empty() {
        return Ok(());
    }
    while replies.try_recv().is_ok() {}
    if input.control(request.trim()) {
        while let Ok(line) = replies.recv_timeout(REPLY_LIMIT) {
            writeln!(stream, "{line}")?;
            if is_last(&line) {
                return Ok(());
            }
        }
    }
    writeln!(stream, "{REPLY_LATE}")
}
