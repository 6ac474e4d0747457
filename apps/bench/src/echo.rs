//! A conversation about nothing, to measure conversation.

use alloc::rc::Rc;
use contract::contract;
use runtime::{Peer, Start};
use serde::{Deserialize, Serialize};

/// An echo server has nothing to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EchoError {}

/// Answers at once. Order: as sent. Limits and rights: none.
#[contract(name = "echo", version = 1)]
pub trait Echo {
    /// The server's time when it saw the request, in ns since boot.
    #[op(repeatable)]
    async fn now(&self) -> Result<u64, EchoError>;
}

struct Server;

impl EchoServer for Server {
    async fn now(&self, _peer: &Peer) -> Result<u64, EchoError> {
        Ok(runtime::now_ns())
    }
}

/// Serves for ever.
pub async fn serve(start: Start) {
    let server = Rc::new(Server);
    let mut incoming = start.incoming(NAME);
    loop {
        let channel = incoming.next().await;
        runtime::spawn(serve_echo(server.clone(), channel));
    }
}
