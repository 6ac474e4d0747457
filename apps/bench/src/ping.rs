//! Asks every core's monitor something small: all cores are up and reachable, or a line says which
//! is not.

use contracts::monitor::{MonitorClient, RegionKind};
use runtime::Start;

use crate::sample::{Stopwatch, row};

/// A core that takes longer is not up.
const LIMIT_NS: u64 = 10_000_000_000;
/// Cores still start while the first ones answer.
const AGAIN_NS: u64 = 50_000_000;
const ROW: &str = "ping-monitor";
const MONITOR: &str = "monitor";
/// Name of a region that is made only to see where it lies.
const PROBE: &str = "probe";

/// Logs `pinged N cores`, and the row.
pub async fn every_core(start: &Start) {
    let Ok(monitor) = start.client::<MonitorClient>(MONITOR) else {
        return runtime::log!("ping failed: no channel to the monitor");
    };
    let end_ns = runtime::now_ns() + LIMIT_NS;
    let mut samples = alloc::vec::Vec::new();
    for core in 0..start.cores() {
        loop {
            let watch = Stopwatch::start_of_every_core(ROW, 1);
            if let Ok(Ok(_)) = runtime::timeout(LIMIT_NS, monitor.memory(core)).await {
                samples.push(watch.stop());
                break;
            }
            if runtime::now_ns() > end_ns {
                runtime::log!("ping failed: core {core} does not answer");
                break;
            }
            runtime::sleep(AGAIN_NS).await;
        }
    }
    runtime::log!("pinged {} cores", samples.len());
    tell_nodes(start, &monitor).await;
    row(ROW, 1, &mut samples);
}

/// On a machine of several nodes: where memory lies that each core gives out.
async fn tell_nodes(start: &Start, monitor: &MonitorClient) {
    let node_of = |core: u32| sys::pcore_stat(core.into()).map_or(0, |(_, node, _)| node);
    if (0..start.cores()).all(|core| node_of(core) == 0) {
        return;
    }
    for core in 0..start.cores() {
        match monitor.region(core, PROBE.into(), 1, RegionKind::Contiguous, None).await {
            Ok(physical) => runtime::log!("memory of core {core} of node {}: {physical:#x}", node_of(core)),
            Err(error) => runtime::log!("no memory of core {core}: {error:?}"),
        }
    }
}
