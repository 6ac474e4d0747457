//! What is under way, told while nothing else is: a silent run cannot be told from a stuck one.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two lines.
const EVERY: Duration = Duration::from_secs(30);

type Work = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Tells every half minute what is under way, until it goes.
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
            }
        });
        Progress { work, stop: Some(stop), teller: Some(teller) }
    }

    /// Counts `name` as under way until the value goes.
    pub fn begin(&self, name: &str) -> UnderWay {
        if let Ok(mut work) = self.work.lock() {
            work.insert(name.to_owned(), Instant::now());
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

fn line(work: &BTreeMap<String, Instant>, now: Instant) -> Option<String> {
    let told: Vec<_> = work.iter().map(|(name, start)| format!("{name} ({} s)", (now - *start).as_secs())).collect();
    (!told.is_empty()).then(|| format!("     under way: {}", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_told_and_nothing_else() {
        let progress = Progress::start();
        let (one, other) = (progress.begin("boot/q35/1"), progress.begin("held/q35/2"));
        drop(one);
        let work = progress.work.lock().unwrap().clone();
        let now = work["held/q35/2"] + Duration::from_secs(31);
        assert_eq!(line(&work, now).unwrap(), "     under way: held/q35/2 (31 s)");
        drop(other);
        assert_eq!(line(&progress.work.lock().unwrap(), now), None);
    }
}
