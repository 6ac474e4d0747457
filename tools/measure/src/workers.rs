//! One worker per core, as threads of this process or as processes, each bound to its core, all
//! begun together.
//!
//! Processes meet over pipes, not shared memory, since a system may have the former only.

use crate::problem::{During, Problem, Result};
use crate::sample::{SAMPLE_BYTES, Sample};
use crate::system::{self, Child};
use std::io::{Read, Write};
use std::sync::{Arc, Barrier};

/// What the workers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of a process.
    Threads,
    /// Nothing.
    Processes,
}

/// Runs `work` in each worker, with the worker's number. `prepare` comes before the common begin
/// and is not measured.
pub fn run<P: 'static>(
    kind: Kind,
    count: usize,
    prepare: fn(usize) -> Result<P>,
    work: fn(&P) -> Result<Vec<Sample>>,
) -> Result<Vec<Sample>> {
    match kind {
        Kind::Threads => threads(count, prepare, work),
        Kind::Processes => processes(count, prepare, work),
    }
}

fn threads<P: 'static>(
    count: usize,
    prepare: fn(usize) -> Result<P>,
    work: fn(&P) -> Result<Vec<Sample>>,
) -> Result<Vec<Sample>> {
    // The caller is one of them: on one core no thread is needed.
    let barrier = Arc::new(Barrier::new(count));
    let body = move |worker: usize, barrier: Arc<Barrier>| {
        system::pin(worker);
        let prepared = prepare(worker);
        barrier.wait();
        let samples = prepared.and_then(|prepared| work(&prepared));
        // Nobody goes while others measure: its end would be measured too.
        barrier.wait();
        samples
    };
    let mut others = Vec::new();
    for worker in 1..count {
        let barrier = barrier.clone();
        // A thread that cannot be made leaves the earlier ones waiting; they end with the process.
        others.push(std::thread::Builder::new().spawn(move || body(worker, barrier)).during("thread (clone)")?);
    }
    let mut samples = body(0, barrier)?;
    for other in others {
        samples.extend(other.join().map_err(|_| Problem::Failed("a thread panicked".into()))??);
    }
    Ok(samples)
}

fn processes<P>(
    count: usize,
    prepare: fn(usize) -> Result<P>,
    work: fn(&P) -> Result<Vec<Sample>>,
) -> Result<Vec<Sample>> {
    let (mut ready, say_ready) = system::pipe()?;
    let (go, mut say_go) = system::pipe()?;
    let mut workers = Vec::new();
    for worker in 0..count {
        let (results, say_result) = system::pipe()?;
        let (mut ready, mut go, mut say) = (&say_ready, &go, &say_result);
        let child = system::fork(move || {
            system::pin(worker);
            let prepared = prepare(worker)?;
            system::send_all(&mut ready, &[0])?;
            system::receive_all(&mut go, &mut [0])?;
            for sample in work(&prepared)? {
                system::send_all(&mut say, &sample.to_bytes())?;
            }
            Ok(())
        })?;
        workers.push((child, results));
    }
    drop(say_ready);
    for _ in 0..count {
        system::receive_all(&mut ready, &mut [0])?;
    }
    say_go.write_all(&vec![0; count]).during("write")?;
    let mut samples = Vec::new();
    for (child, results) in workers {
        collect(&child, results, &mut samples)?;
    }
    Ok(samples)
}

fn collect(child: &Child, mut results: impl Read, samples: &mut Vec<Sample>) -> Result<()> {
    let mut bytes = Vec::new();
    results.read_to_end(&mut bytes).during("read")?;
    child.succeed()?;
    let (whole, _) = bytes.as_chunks::<SAMPLE_BYTES>();
    samples.extend(whole.iter().map(|bytes| Sample::from_bytes(*bytes)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_tells_its_samples() {
        let sample = |worker: &usize| Ok(vec![Sample { ns: *worker as u64, operations: 1, faults: 0 }]);
        let mut seen = threads(3, Ok, sample).unwrap();
        seen.sort_by_key(|sample| sample.ns);
        assert_eq!(seen.iter().map(|sample| sample.ns).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
