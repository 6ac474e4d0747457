//! Both sides in one program, over plain memory: for tests of servers on a host.

use alloc::rc::Rc;
use alloc::string::String;
use core::any::Any;
use std::boxed::Box;
use std::vec::Vec;

use crate::client::ClientChannel;
use crate::doorbell::Doorbell;
use crate::link::Wiring;
use crate::memory::{Layout, Memory};
use crate::server::ServerChannel;

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

/// Memory of a fresh channel, once for each of `views`: client, server, and a monitor that raises
/// generations, for instance. The views share the bytes and free them with the last.
pub fn loopback_memory<const VIEWS: usize>(layout: Layout) -> [Memory; VIEWS] {
    let mut pages: Vec<Page> = std::vec![Page([0; 4096]); (layout.bytes() / 4096) as usize];
    let address = pages.as_mut_ptr() as u64;
    let keeper: Rc<dyn Any> = Rc::new(Box::new(pages));
    // SAFETY: the pages are reached through these views only and live as long as the keeper.
    let formatted = unsafe { Memory::format(address, layout.bytes(), layout, Some(keeper.clone())) };
    drop(formatted.expect("a layout with a ring size that is allowed"));
    core::array::from_fn(|_| {
        // SAFETY: as above.
        unsafe { Memory::attach(address, layout.bytes(), Some(keeper.clone())) }.expect("just formatted")
    })
}

/// Memory of a fresh channel that is there for ever, as a component's is; one view.
#[cfg(test)]
pub(crate) fn lasting_memory(layout: Layout) -> Memory {
    let pages = std::vec![Page([0; 4096]); (layout.bytes() / 4096) as usize].leak();
    let address = pages.as_mut_ptr() as u64;
    // SAFETY: it is leaked, and reached by this only.
    unsafe { Memory::format(address, layout.bytes(), layout, None) }.expect("a layout with a ring size that is allowed")
}

/// A client and a server joined by a fresh channel. The client is unbound; a stub's `new` binds it.
pub fn loopback(layout: Layout) -> (Rc<ClientChannel>, ServerChannel) {
    let [client, server] = loopback_memory(layout);
    (ClientChannel::new(loopback_wiring(client, true)), ServerChannel::new(loopback_wiring(server, false)))
}

/// Badge bits of the two sides.
const CLIENT_BIT: u64 = 1;
const SERVER_BIT: u64 = 2;

/// Wiring of one side; its peer is component "server" with domain id 2, or "client" with 1.
pub fn loopback_wiring(memory: Memory, client: bool) -> Wiring {
    let (own, other) = if client { (CLIENT_BIT, SERVER_BIT) } else { (SERVER_BIT, CLIENT_BIT) };
    let peer = String::from(if client { "server" } else { "client" });
    Wiring {
        memory,
        doorbell: Doorbell::Loopback(other),
        badge: own,
        remote: false,
        peer,
        peer_set: if client { 2 } else { 1 },
    }
}
