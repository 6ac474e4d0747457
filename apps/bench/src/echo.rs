//! A conversation about nothing, to measure conversation.

use alloc::rc::Rc;
use alloc::vec::Vec;
use contract::contract;
use runtime::{Peer, Start};
use serde::{Deserialize, Serialize};

use crate::gang;

/// Why an echo server does not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EchoError {
    /// It has no right to its core, or no memory. Give it `cores` in the description.
    NoGang,
}

/// Answers at once. Order: as sent. Limits and rights: none.
#[contract(name = "echo", version = 2)]
pub trait Echo {
    /// The server's time when it saw the request, in ns since boot.
    #[op(repeatable)]
    async fn now(&self) -> Result<u64, EchoError>;
    /// Runs a member of a gang whose first window opens at that time (us since boot), and answers
    /// when all windows are over: when it first ran in each, in ns since boot; 0: not at all.
    #[op(repeatable)]
    async fn gang(&self, first_us: u64) -> Result<Vec<u64>, EchoError>;
}

struct Server {
    start: Start,
}

impl EchoServer for Server {
    async fn now(&self, _peer: &Peer) -> Result<u64, EchoError> {
        Ok(runtime::now_ns())
    }

    async fn gang(&self, _peer: &Peer, first_us: u64) -> Result<Vec<u64>, EchoError> {
        let pcore = self.start.capability("cores").ok_or(EchoError::NoGang)?;
        gang::take_part(pcore, first_us).await.map_err(|_| EchoError::NoGang)
    }
}

/// Serves for ever.
pub async fn serve(start: Start) {
    let server = Rc::new(Server { start: start.clone() });
    let mut incoming = start.incoming(NAME);
    loop {
        let channel = incoming.next().await;
        runtime::spawn(serve_echo(server.clone(), channel));
    }
}
