//! What is under way, told while nothing else is: a silent run cannot be told from a stuck one.

use crate::host::leftovers;
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two lines.
const EVERY: Duration = Duration::from_secs(30);
/// What of a plain run is under way for longer has hung, and what of a nightly one.
pub const LIMIT: Duration = Duration::from_secs(30 * 60);
pub const NIGHTLY_LIMIT: Duration = Duration::from_secs(6 * 60 * 60);

/// Since when, and for how long at most.
type Work = Arc<Mutex<BTreeMap<String, (Instant, Duration)>>>;

/// Tells every half minute what is under way, until it goes. Ends the run if that hangs: each wait
/// of a scenario has a limit of its own, and this is for those that were forgotten.
pub struct Progress {
    work: Work,
    stop: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to tell.
    pub fn start() -> Progress {
        let work = Work::default();
        let (stop, stopped) = channel::<()>();
        let told = work.clone();
        let teller = std::thread::spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let Ok(work) = told.lock() else { return };
                if let Some(line) = line(&work, Instant::now()) {
                    println!("{line}");
                }
                if let Some(name) = hung(&work, Instant::now()) {
                    println!("FAIL {name} has hung; the run ends here");
                    leftovers::end();
                    println!("0 passed, 1 failed");
                    std::process::exit(1);
                }
            }
        });
        Progress { work, stop: Some(stop), teller: Some(teller) }
    }

    /// Counts `name` as under way until the value goes, for `limit` at most.
    pub fn begin(&self, name: &str, limit: Duration) -> UnderWay {
        if let Ok(mut work) = self.work.lock() {
            work.insert(name.to_owned(), (Instant::now(), limit));
        }
        UnderWay { name: name.to_owned(), work: self.work.clone() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It has nothing to fail with.
        let _ = self.teller.take().map(JoinHandle::join);
    }
}

/// Something that is under way.
pub struct UnderWay {
    name: String,
    work: Work,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Ok(mut work) = self.work.lock() {
            work.remove(&self.name);
        }
    }
}

fn line(work: &BTreeMap<String, (Instant, Duration)>, now: Instant) -> Option<String> {
    let told: Vec<_> =
        work.iter().map(|(name, (start, _))| format!("{name} ({} s)", (now - *start).as_secs())).collect();
    (!told.is_empty()).then(|| format!("     under way: {}", told.join(", ")))
}

fn hung(work: &BTreeMap<String, (Instant, Duration)>, now: Instant) -> Option<&str> {
    work.iter().find(|(_, (start, limit))| now - *start > *limit).map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_told_and_nothing_else() {
        let progress = Progress::start();
        let (one, other) = (progress.begin("boot/q35/1", LIMIT), progress.begin("open-connections/q35/2", LIMIT));
        drop(one);
        let work = progress.work.lock().unwrap().clone();
        let now = work["open-connections/q35/2"].0 + Duration::from_secs(31);
        assert_eq!(line(&work, now).unwrap(), "     under way: open-connections/q35/2 (31 s)");
        assert_eq!(hung(&work, now), None);
        assert_eq!(hung(&work, now + LIMIT), Some("open-connections/q35/2"));
        drop(other);
        assert_eq!(line(&progress.work.lock().unwrap(), now), None);
    }
}
