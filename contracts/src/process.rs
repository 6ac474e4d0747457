//! Processes: ids, parents, wait, groups, sessions, signals, pipes. Server: `process`; client: the proxy of each Linux program.

use alloc::string::String;
use alloc::vec::Vec;
use contract::contract;
use serde::{Deserialize, Serialize};

use crate::descriptions::DescriptionId;

/// Process, group and session ids, from 1.
pub type ProcessId = u32;

/// How a process came to be, told to its fresh proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The program asked for by `run`: its etc/run says what.
    First,
    /// A forked child: its state is in the inherited process-state region.
    Fork,
}

/// Answer to [`Process::hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    pub process: ProcessId,
    pub parent: ProcessId,
    pub group: ProcessId,
    pub session: ProcessId,
    pub origin: Origin,
}

/// A child being forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    pub process: ProcessId,
    /// Its domain id, as servers know their clients.
    pub domain: u64,
    /// Handle in the *caller's* share of the child's Domain (WRITE), for `DomainFork`; the caller drops it.
    pub handle: u64,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    Exited(u8),
    Signalled(u8),
}

/// Whom to wait for, or to signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    Any,
    Process(ProcessId),
    Group(ProcessId),
    /// The caller's own group.
    OwnGroup,
}

/// Why a process operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessError {
    /// No such process or group.
    NotFound,
    /// No child that fits.
    NoChild,
    /// Not allowed across sessions, or for a leader.
    Denied,
    /// Signal number or argument without meaning.
    Invalid,
    /// As many processes as the limit allows, or no memory for one more. Remedy: wait for some to end.
    TooMany,
    /// The server failed inside; it was logged there.
    Failed,
}

/// A line of the process table, for /proc and `ps`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLine {
    pub process: ProcessId,
    pub parent: ProcessId,
    pub group: ProcessId,
    pub session: ProcessId,
    /// R, S or Z.
    pub state: char,
    /// Base name, at most 15 bytes.
    pub name: String,
    /// Joined arguments, at most 128 bytes.
    pub command_line: String,
    pub pages: u64,
    pub cpu_ns: u64,
}

/// Process operations. Order: as sent; `wait` may overtake. Limits: `MAX_PROCESSES` in `servers/process`. Rights: a process acts for itself only; signals follow the one-user rule (all may signal all but the system).
#[contract(name = "process", version = 1)]
pub trait Process {
    /// First request of a fresh proxy.
    #[op(repeatable)]
    async fn hello(&self) -> Result<Birth, ProcessError>;

    /// Makes a child: process id, empty domain with a proxy that waits, channels to the same servers. The caller then lets each server `inherit`, does `DomainFork`, and calls `fork_start`; `fork_cancel` if that failed.
    #[op]
    async fn fork_prepare(&self) -> Result<Forked, ProcessError>;

    /// Lets the child run.
    #[op]
    async fn fork_start(&self, process: ProcessId) -> Result<(), ProcessError>;

    /// Throws an unstarted child away.
    #[op]
    async fn fork_cancel(&self, process: ProcessId) -> Result<(), ProcessError>;

    /// Ends the caller; the domain is killed after the answer is under way.
    #[op]
    async fn exit(&self, how: Ended) -> Result<(), ProcessError>;

    /// Takes an ended child; `None` without `wait` if none has ended. `NoChild`.
    #[op]
    async fn wait(&self, target: Target, wait: bool) -> Result<Option<(ProcessId, Ended)>, ProcessError>;

    /// Sends a signal (1..=64; 0 only checks). SIGKILL ends the domain at once; others become `signal` events of the target's proxy.
    #[op]
    async fn signal(&self, target: Target, number: u8) -> Result<(), ProcessError>;

    /// Sets the process group; 0 = the process itself.
    #[op]
    async fn set_group(&self, process: ProcessId, group: ProcessId) -> Result<(), ProcessError>;

    /// Group and session of a process; 0 = the caller.
    #[op(repeatable)]
    async fn groups(&self, process: ProcessId) -> Result<(ProcessId, ProcessId), ProcessError>;

    /// Becomes leader of a new session without a terminal.
    #[op]
    async fn new_session(&self) -> Result<ProcessId, ProcessError>;

    /// Signal `number` at a time (ns since boot), then every `interval_ns` if not 0; `None` stops. Gives what was left of an earlier one. One timer a process.
    #[op]
    async fn alarm(&self, at_ns: Option<u64>, interval_ns: u64, number: u8) -> Result<Option<u64>, ProcessError>;

    /// Whether children that end vanish at once without a wait (the program ignores SIGCHLD). A forked child starts with its parent's choice.
    #[op(oneway)]
    fn discard_children(&self, on: bool);

    /// Name and arguments for `ps` (after exec).
    #[op(oneway)]
    fn describe(&self, name: String, command_line: String);

    /// A pipe: description ids of its reading and writing end, at this server's `descriptions`. `TooMany`.
    #[op]
    async fn pipe(&self) -> Result<(DescriptionId, DescriptionId), ProcessError>;

    /// The process with the smallest id of at least `from`; `None` at the end. For /proc.
    #[op(repeatable)]
    async fn list(&self, from: ProcessId) -> Result<Option<ProcessLine>, ProcessError>;

    /// All its ids, ascending, at most 200 from `from` on.
    #[op(repeatable)]
    async fn ids(&self, from: ProcessId) -> Result<Vec<ProcessId>, ProcessError>;

    /// A signal for the client.
    #[event]
    fn signal_sent(&self, number: u8, sender: ProcessId);
}
