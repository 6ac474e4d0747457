//! The pool of cores, and the system's own cores halted and started again.

use abi::{Error, Handle};
use alloc::format;
use alloc::string::String;
use contracts::monitor::ChannelPlan;

use crate::claim::change;
use crate::{Bench, Outcome, ensure, must_be, refused};

const CYCLES: u32 = 100;
/// Rounds after which monitors hold what they keep.
const WARM_UP: u32 = 3;

fn alloc(bench: &Bench, core: u64) -> Result<Handle, Error> {
    sys::pcore_alloc(bench.cores, Handle::SELF_RAM, core)
}

/// A core that the system uses is not free; one that it gave away can be claimed once, and is free
/// again when the claim goes.
pub async fn claim(bench: &Bench) -> Outcome {
    let core = bench.last_core();
    let (number, count) = (core.into(), bench.start.cores().into());
    must_be(alloc(bench, number), Error::Busy, "PcoreAlloc of the system's core")?;
    must_be(alloc(bench, 0), Error::BadArgument, "PcoreAlloc of core 0")?;
    must_be(alloc(bench, count), Error::BadArgument, "PcoreAlloc past the last core")?;
    must_be(
        sys::pcore_alloc(Handle::SELF_RAM, Handle::SELF_RAM, number),
        Error::WrongType,
        "PcoreAlloc by an account",
    )?;
    change(bench, core, false).await?;
    let running = sys::pcore_current().map_err(refused("PcoreCurrent"))?.2;
    ensure(running == u64::from(bench.start.cores()) - 1, || format!("{running} cores run"))?;
    for _ in 0..3 {
        let pcore = alloc(bench, number).map_err(refused("PcoreAlloc"))?;
        must_be(alloc(bench, number), Error::Busy, "PcoreAlloc, twice")?;
        let answer = bench.monitor.change_core(core, true).await;
        ensure(format!("{answer:?}").contains("Busy"), || format!("the system takes a claimed core: {answer:?}"))?;
        sys::cap_drop(pcore).map_err(refused("CapDrop"))?;
    }
    change(bench, core, true).await
}

/// A core with something on it is not halted, nor core 0.
pub async fn occupied(bench: &Bench) -> Outcome {
    let core = bench.last_core();
    let plan = ChannelPlan {
        worker: None,
        id: 1 << 40,
        contract: String::from("none"),
        client: String::from("none"),
        server: String::from("none"),
        client_core: core,
        server_core: core,
        ring_slots: 16,
        bulk_bytes: 0,
    };
    let id = plan.id;
    let opened = bench.monitor.open(core, plan, None).await;
    ensure(opened.is_ok(), || format!("open: {opened:?}"))?;
    let busy = bench.monitor.change_core(core, false).await;
    ensure(format!("{busy:?}").contains("Busy"), || format!("halting an occupied core: {busy:?}"))?;
    let closed = bench.monitor.close(core, id).await;
    ensure(closed.is_ok(), || format!("close: {closed:?}"))?;
    let first = bench.monitor.change_core(0, false).await;
    ensure(format!("{first:?}").contains("NoCore"), || format!("halting core 0: {first:?}"))
}

/// A core is halted and started a hundred times while the others serve: no page is missing, on its
/// side or ours.
pub async fn cycles(bench: &Bench) -> Outcome {
    let core = bench.last_core();
    let mut before = None;
    for round in 0..WARM_UP + CYCLES {
        change(bench, core, false).await?;
        let gone = bench.monitor.memory(core).await;
        ensure(format!("{gone:?}").contains("NoCore"), || format!("a halted core's monitor says {gone:?}"))?;
        for other in 0..core {
            let answer = bench.monitor.memory(other).await;
            ensure(answer.is_ok(), || format!("core {other} says {answer:?}"))?;
        }
        change(bench, core, true).await?;
        let now = free(bench, core).await?;
        match before {
            None if round + 1 == WARM_UP => before = Some(now),
            Some(then) => ensure(then == now, || format!("free pages {then:?} at first, {now:?} in round {round}"))?,
            None => (),
        }
    }
    Ok(())
}

/// Free pages of that core and of core 0.
async fn free(bench: &Bench, core: u32) -> Result<[u64; 2], String> {
    let mut pages = [0; 2];
    for (pages, core) in pages.iter_mut().zip([core, 0]) {
        let memory = bench.monitor.memory(core).await.map_err(|error| format!("memory({core}): {error:?}"))?;
        *pages = memory.free_pages;
    }
    Ok(pages)
}

/// After all that the core serves the system as before.
pub async fn serves_again(bench: &Bench) -> Outcome {
    let running = sys::pcore_current().map_err(refused("PcoreCurrent"))?.2;
    ensure(running == bench.start.cores().into(), || format!("{running} cores run"))?;
    let memory = bench.monitor.memory(bench.last_core()).await;
    ensure(memory.is_ok(), || format!("{memory:?}"))
}
