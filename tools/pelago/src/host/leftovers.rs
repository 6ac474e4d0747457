//! Processes that scenarios leave behind. They hold the outputs of this one, so a reader of
//! those outputs, such as a pipe or CI, would wait for them too.

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Ends all in this time, or leaves them.
const LIMIT: Duration = Duration::from_secs(5);

/// Makes this process the parent of all whose parents end before them (prctl(2)).
pub fn adopt() {
    // Kernels before 3.4 refuse: then nothing is found.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Ends all children, and theirs; gives their names.
pub fn end() -> Vec<String> {
    let (mut names, limit) = (Vec::new(), Instant::now() + LIMIT);
    loop {
        let children = children();
        if children.is_empty() || Instant::now() > limit {
            return names;
        }
        for child in children {
            // proc(5): the name in brackets, then the state. What has ended waits for its parent.
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let (name, state) = stat.rsplit_once(") ").unwrap_or_default();
            if !state.starts_with('Z') {
                names.push(name.to_owned() + ")");
            }
            // Either may fail only because it has ended already.
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
        }
    }
}

/// Children of all threads of this process (proc(5)).
fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    texts
        .flat_map(|text| {
            text.split_whitespace().filter_map(|id| id.parse().ok()).map(Pid::from_raw).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_lost_its_parent_is_found_and_ended() {
        adopt();
        let status = Command::new("sh").args(["-c", "sleep 601 >/dev/null 2>&1 &"]).status().unwrap();
        assert!(status.success());
        // Other tests have children too, which are not to be ended here.
        let is_left = || {
            let name = |child: &Pid| std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            children().into_iter().find(|child| name(child) == b"sleep\x00601\x00")
        };
        let end = Instant::now() + Duration::from_secs(60);
        let left = loop {
            match is_left() {
                Some(left) => break left,
                None => assert!(Instant::now() < end, "the orphan is no child of this process"),
            }
        };
        kill(left, Signal::SIGKILL).unwrap();
        waitpid(left, None).unwrap();
        assert!(is_left().is_none());
    }
}
