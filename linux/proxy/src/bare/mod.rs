//! The proxy on the machine.

mod directories;
mod entry;
mod errors;
mod exec;
mod files;
mod fork;
mod input_output;
mod load;
mod mapping;
mod numbers;
mod poll;
mod process;
mod proxy;
mod signals;
mod sockets;
mod syscall;
mod time;
mod user;
mod wait;

use contracts::process::Origin;
use runtime::Start;

runtime::main!(component);

async fn component(start: Start) {
    let run = start.file("etc/run");
    let proxy = match proxy::bind(&start).await {
        Ok(proxy) => proxy,
        Err(missing) => return runtime::log!("no channel to {missing}: no Linux program can run here"),
    };
    match proxy.birth.origin {
        Origin::First => exec::first(run).await,
        Origin::Fork => fork::adopt(proxy),
    }
}
