//! Entry: an echo server or the client that measures, by name.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use bench_core::{
    calls, echo, faults, gang, layouts, load, nova, ping, portal, revoke, sample, signals, spaces, threads,
};
use runtime::Start;

/// Other components still start; their work would be measured too.
const SETTLE_NS: u64 = 300_000_000;

async fn component(start: Start) {
    if start.name().starts_with(layouts::NAME) {
        return layouts::run(start).await;
    }
    start.serving();
    if start.name().starts_with(load::NAME) {
        load::run(&start).await;
        return idle().await;
    }
    if start.name().starts_with(nova::NAME) {
        nova::run(&start).await;
        return idle().await;
    }
    if start.name() != "bench" {
        return echo::serve(start).await;
    }
    ping::every_core(&start).await;
    revoke::check();
    runtime::sleep(SETTLE_NS).await;
    mark::arm();
    sample::known_loop();
    calls::null();
    if let Err(error) = portal::all().await {
        runtime::log!("portal calls failed {error:?}");
    }
    if let Err(error) = signals::all() {
        runtime::log!("notifications and semaphores failed {error:?}");
    }
    if let Err(error) = threads::all() {
        runtime::log!("user-level threads failed {error:?}");
    }
    calls::mailbox(&start);
    calls::contracts(&start).await;
    if let Err(error) = faults::all().await {
        runtime::log!("page faults failed {error:?}");
    }
    if let Err(error) = spaces::all().await {
        runtime::log!("address ranges failed {error:?}");
    }
    if let Err(error) = revoke::all().await {
        runtime::log!("revocation failed {error:?}");
    }
    mark::finish();
    if let Err(error) = gang::skew(&start).await {
        runtime::log!("gang-skew failed {error:?}");
    }
    runtime::log!("done");
    idle().await;
}

/// The system may end with this component; the reader of the rows ends it instead.
async fn idle() {
    loop {
        runtime::sleep(u64::MAX / 4).await;
    }
}

runtime::main!(component);
