//! The proxy on the machine.

mod addresses;
mod attributes;
mod counters;
mod entry;
mod errors;
mod exec;
mod fast_io;
mod fd;
mod files;
mod fork;
mod futex;
mod global;
mod identity;
mod input_output;
mod load;
mod locks;
mod mapping;
mod messages;
mod own_files;
mod paging;
mod places;
mod poll;
mod process;
mod process_handles;
mod proxy;
mod read_ahead;
mod rights;
mod scheduling;
mod shared_files;
mod signals;
mod sockets;
mod syscall;
mod system_v;
mod threads;
mod time;
mod timers;
mod transfer;
mod unnamed;
mod user;
mod vfork;
mod wait;

use abi::start::Entrance;
use runtime::Start;

runtime::main!(component);

async fn component(start: Start) {
    let (run, entrance) = (start.file("etc/run"), start.entrance());
    let proxy = match proxy::bind(start) {
        Ok(proxy) => proxy,
        Err(missing) => return runtime::log!("no channel to {missing}: no Linux program can run here"),
    };
    match entrance {
        // A forked child: its memory is a copy of its parent's, and with it the process state.
        Entrance::Adopt => fork::adopt(proxy),
        Entrance::Fresh | Entrance::Recover => exec::first(run).await,
    }
}
