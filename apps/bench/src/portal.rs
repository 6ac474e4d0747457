//! Portal calls to protection domains that do nothing but answer.
//!
//! The caller's time goes with the call, so a call and its reply are two address-space switches and
//! no scheduling.

use abi::{Error, Handle};

use crate::sample::{SAMPLES, Stopwatch, Stretch, repeat, row};
use worker::{Job, SHARED, Worker};

const CALL_LIMIT_NS: u64 = 1_000_000_000;
/// Enough for a worker of the lowest priority to get into its call.
const REST_NS: u64 = 2_000_000;
const OURS: u64 = 1;
const THEIRS: u64 = 2;

/// All rows.
pub async fn all() -> Result<(), Error> {
    let server = Worker::new(0, Job::Answer)?;
    server.start([0; 2])?;
    calls("portal-call-and-reply", server.portal(OURS)?)?;
    through_three(server)?;
    helping().await
}

/// The first call shows that somebody answers; without a limit the call alone is measured.
fn calls(name: &str, portal: Handle) -> Result<(), Error> {
    sys::portal_call(portal, [0; 4], runtime::now_ns() + CALL_LIMIT_NS)?;
    repeat(name, || {
        let _ = sys::portal_call(portal, [1, 2, 3, 4], u64::MAX);
    });
    sys::cap_drop(portal)
}

/// Our time goes along a chain of three servers.
fn through_three(last: Worker) -> Result<(), Error> {
    let mut servers = [Some(last), None, None];
    for at in 1..servers.len() {
        let server = Worker::new(at as u64, Job::Forward)?;
        if let Some(next) = &servers[at - 1] {
            server.start([server.give(next.portal(OURS)?)?, 0])?;
        }
        servers[at] = Some(server);
    }
    match &servers[servers.len() - 1] {
        Some(first) => calls("portal-call-through-3-servers", first.portal(OURS)?),
        None => Err(Error::NotFound),
    }
}

const HELPING: &str = "portal-call-helping";

/// A call to a server that a client without time of any worth keeps busy: our time first brings
/// that one's call to its end.
async fn helping() -> Result<(), Error> {
    let (server, rival) = (Worker::new(0, Job::Hold)?, Worker::new(1, Job::Call)?);
    server.start([SHARED, THEIRS])?;
    rival.start([rival.give(server.portal(THEIRS)?)?, 0])?;
    let portal = server.portal(OURS)?;
    let mut samples = [Stretch::default(); SAMPLES];
    for sample in &mut samples {
        server.set_shared(0);
        // Now the rival calls, and the server holds its call.
        runtime::sleep(REST_NS).await;
        let watch = Stopwatch::start_of_every_core(HELPING, 1);
        server.set_shared(1);
        sys::portal_call(portal, [0; 4], u64::MAX)?;
        *sample = watch.stop();
    }
    row(HELPING, 1, &mut samples);
    Ok(())
}
