//! User-level threads: a switch between two that give way, and a thread from its making to its
//! join.

use alloc::boxed::Box;

use abi::Error;
use threads::{Answer, Ended, Refused, RoundRobin, Threads};

use crate::sample::{BATCH, SAMPLES, Stopwatch, Stretch, repeat, row};

const STACK_PAGES: u64 = 2;
const SWITCH: &str = "user-thread-switch";

/// All rows.
pub fn all() -> Result<(), Error> {
    // SAFETY: the threads below use no heap; none of them faults.
    let threads = unsafe { Threads::new(Box::new(RoundRobin::default()), STACK_PAGES, false, |_, _, _| Answer::End) };
    let mut threads = threads.map_err(reason)?;
    let partner = threads.spawn(yields, SAMPLES as u64 * BATCH).map_err(reason)?;
    let measured = threads.spawn(measures, 0).map_err(reason)?;
    let ended = threads.run().map_err(reason)?;
    for id in [partner, measured] {
        threads.ended(id).map_err(reason)?;
    }
    if ended != Ended::All {
        return Err(Error::Timeout);
    }
    repeat("user-thread-create-join", || {
        if let Ok(id) = threads.spawn(ends, 0)
            && threads.run() == Ok(Ended::All)
        {
            let _ = threads.ended(id);
        }
    });
    Ok(())
}

fn reason(refused: Refused) -> Error {
    match refused {
        Refused::TooMany => Error::NoSlot,
        Refused::NotFound => Error::NotFound,
        Refused::Busy => Error::Busy,
        Refused::Kernel(error) => error,
    }
}

extern "C" fn yields(times: u64) -> u64 {
    for _ in 0..times {
        threads::yield_now();
    }
    0
}

/// Each of our turns is followed by one of the partner's: two switches.
extern "C" fn measures(_: u64) -> u64 {
    let mut samples = [Stretch::default(); SAMPLES];
    for sample in &mut samples {
        let watch = Stopwatch::start(SWITCH, 2 * BATCH);
        for _ in 0..BATCH {
            threads::yield_now();
        }
        *sample = watch.stop();
    }
    row(SWITCH, 2 * BATCH, &mut samples);
    0
}

extern "C" fn ends(_: u64) -> u64 {
    0
}
