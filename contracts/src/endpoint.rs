//! What a component's monitor tells it while it runs. Client: the monitor; server: the runtime of
//! every component.

use alloc::string::String;
use alloc::vec::Vec;
use contract::contract;
use serde::{Deserialize, Serialize};

/// A channel that was put into the component's share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wired {
    /// Name of the contract that runs over it.
    pub contract: String,
    /// The other side's component name, and the set of channels it belongs to if one client after
    /// another uses that, else 0.
    pub peer: String,
    pub peer_set: u32,
    /// Handles in the component's share: the channel's segment (READ, WRITE), and the capability
    /// that rings the peer.
    pub segment: u64,
    pub doorbell: u64,
    /// Bytes of the segment.
    pub bytes: u64,
    /// Badge bits that announce it.
    pub badge: u64,
    /// The component is the side that calls.
    pub client: bool,
    /// Then the number of its request.
    pub request: u64,
    /// The peer is on another core.
    pub remote: bool,
}

/// Why a channel was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointError {
    /// Nobody in the component serves that contract, or waits for such a channel. Remedy: correct
    /// the system description.
    NotServed,
    /// The segment could not be mapped, or holds no channel. Its capabilities were dropped.
    BadChannel,
    /// As many channels wait to be taken as the component lets wait. Remedy: later again.
    TooMany,
}

/// Why a component was not connected to a server that it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindError {
    /// The description does not let it. Remedy: the contract's name among its `binds`.
    NotAllowed,
    /// Nobody serves that contract, or not so many do, or the one who does is the component itself.
    NotFound,
    /// No room for another channel, no answer in time, or a server that ended meanwhile; logged by
    /// spawn. Remedy: later again.
    Failed,
}

/// What `chaos` makes a component do to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectedFault {
    /// Reads a bad address.
    Fault,
    /// Loops for ever.
    Hang,
    /// Waits in the kernel for what never comes: a silent deadlock.
    Block,
    /// Panics.
    Panic,
    /// Its workers loop for ever in their next call. One without workers goes on.
    Worker,
}

/// Most clients of a [`Work`]: it must fit into a message.
pub const WORK_CLIENTS_MAX: usize = 16;

/// How long a component ran, by whom its tasks worked for, in nanoseconds. A component that asks
/// another is that one's client, even when it asks for a client of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Clients, by the names that their domains have, each once, the most first.
    pub clients: Vec<(String, u64)>,
    /// Clients beyond those.
    pub others_ns: u64,
    /// Clients that have ended, or lost their channel.
    pub ended_ns: u64,
    /// No client.
    pub own_ns: u64,
    /// All that the component ran since this was asked first. The rest of it was in no task: the
    /// kernel's work when it sleeps and wakes, and contexts beside its tasks, as workers that serve
    /// calls.
    pub ran_ns: u64,
}

/// Wiring at run time. Order: as sent. Rights: the component's own monitor only, which made the
/// channel it comes over.
#[contract(name = "endpoint", version = 1)]
pub trait Endpoint {
    /// Takes a channel. Handles belong to the component from now on, also if refused.
    #[op]
    async fn connect(&self, wired: Wired) -> Result<(), EndpointError>;

    /// For whom the component worked since this was asked first; asked seldom, it begins anew.
    #[op(repeatable)]
    async fn work(&self) -> Result<Work, EndpointError>;

    /// The component is not connected. `request` is from `wants`.
    #[op(oneway)]
    fn refused(&self, request: u64, why: BindError);

    /// Breaks the component on purpose, for tests of recovery.
    #[op(oneway)]
    fn inject_fault(&self, how: InjectedFault);

    /// The component asks to be connected to a server of a contract: the nearest, or, by `index`,
    /// one of the next. Answered by `connect` or `refused`.
    #[event]
    fn wants(&self, request: u64, contract: String, index: u32);

    /// The component is ready to serve; sent once, by `start.serving()`.
    #[event]
    fn serving(&self);
}
