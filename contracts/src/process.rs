//! Processes: ids, parents, wait, groups, sessions, signals and timers, and descriptions that need
//! no device: pipes, event counters, timers and process handles. Server: `process`; client: the
//! proxy of each Linux program.

use alloc::string::String;
use alloc::vec::Vec;
use contract::contract;
use serde::{Deserialize, Serialize};

use crate::descriptions::DescriptionId;
use crate::shared_memory::{
    Attached, SegmentChange, SegmentError, SegmentId, SegmentName, SegmentState, SegmentWish, SegmentsSum,
};

/// Process, group and session ids, from 1.
pub type ProcessId = u32;

/// Answer to [`Process::hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    pub process: ProcessId,
    pub parent: ProcessId,
    pub group: ProcessId,
    pub session: ProcessId,
}

/// A child being forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    pub process: ProcessId,
    /// As servers know their clients (`channel::client_id`).
    pub client: u64,
    /// Handles in the *caller's* share of the child's Domain and ExecutionContext, for `DomainFork`
    /// and `ContextStart`; the caller drops them.
    pub handles: [u64; 2],
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    Exited(u8),
    Signalled(u8),
}

/// Marks a status of `DomainExit` as an end in order; a proxy that fails gives plain numbers.
const IN_ORDER: u64 = 1 << 32;
/// Marks a signal among those.
const BY_SIGNAL: u64 = 1 << 8;

impl Ended {
    /// As a shell has it: 128 and the number for a signal.
    pub const fn shell_status(self) -> u8 {
        match self {
            Ended::Exited(status) => status,
            Ended::Signalled(number) => number.wrapping_add(128),
        }
    }

    /// How a proxy tells it: as the status with which it ends its own domain.
    pub const fn to_status(self) -> u64 {
        IN_ORDER
            | match self {
                Ended::Exited(status) => status as u64,
                Ended::Signalled(number) => BY_SIGNAL | number as u64,
            }
    }

    /// What such a status says; `None` for any other number.
    pub const fn from_status(status: u64) -> Option<Ended> {
        match status & !0xff {
            IN_ORDER => Some(Ended::Exited(status as u8)),
            bits if bits == IN_ORDER | BY_SIGNAL => Some(Ended::Signalled(status as u8)),
            _ => None,
        }
    }
}

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildState {
    /// It ended, and is gone with this answer.
    Ended(Ended),
    /// It stopped, for this signal.
    Stopped(u8),
    /// It runs again.
    Continued,
}

/// Which changes of which children a wait is for; stops and continuations are told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interest {
    pub ended: bool,
    pub stopped: bool,
    pub continued: bool,
    /// Of children whose end is told by SIGCHLD, as of all that exec.
    pub ordinary: bool,
    /// Of those whose end is told by another signal, or not at all.
    pub clones: bool,
}

/// How a child is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkOptions {
    /// The caller asks for [`vfork_wait`](Process::vfork_wait) once the child is started.
    pub is_vfork: bool,
    /// What the parent gets at the child's end, which is SIGCHLD again once the child execs or has
    /// another parent; 0 for nothing.
    pub end_signal: u8,
    /// So many processes the caller's user may have, the child among them; root may have all.
    pub user_limit: u32,
}

/// Answer to [`Process::terminal_access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TerminalAccess {
    /// The caller may use the terminal.
    Foreground,
    /// It may not; its group was sent SIGTTIN if the caller asked for that.
    Background,
    /// It may not, and its group is orphaned: nobody could continue it if it stopped.
    Orphaned,
}

/// Whom to wait for, or to signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    Any,
    Process(ProcessId),
    Group(ProcessId),
    /// The caller's own group.
    OwnGroup,
    /// The process of a handle that the caller holds.
    Handle(DescriptionId),
}

/// Why a signal was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalCause {
    /// By this process; 0 is the system.
    Process(ProcessId),
    /// With data; `code` is the sender's word.
    Queued { process: ProcessId, code: i32, value: u64 },
    /// What became of a child.
    Child { process: ProcessId, state: ChildState },
}

/// Where a timer stands, or what it is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerState {
    /// Nanoseconds until it expires next; 0 = it does not.
    pub left_ns: u64,
    /// Between expirations after that; 0 = once.
    pub interval_ns: u64,
}

/// When a timer is to expire first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerStart {
    /// Not at all.
    Never,
    /// So many nanoseconds from now.
    In(u64),
    /// At this time: nanoseconds since boot, or since 1970 for a timer of the day.
    At(u64),
}

/// A child that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildNews {
    pub process: ProcessId,
    pub state: ChildState,
    /// Processor time that it and the children it waited for used; 0 unless it ended.
    pub cpu_ns: u64,
}

/// Interval timers of a process that send signals: the first is `alarm(2)`'s, the last three look
/// after the time that it used.
pub const TIMERS_MAX: u32 = 36;
/// Processes of one branch: a program with all that descends from it. The first program's is what
/// descends from it without exec; exec there begins a branch, for which the first program's has a
/// place less. A fork bomb reaches this and then only gets errors, while other branches have room.
/// Each branch has turns of the core of its own. A living process
/// takes some 36 of its monitor's 16,384 slots, most of them for its 8 channels, so that about 450
/// live on a core at once, of which this leaves 30 to others. Those that are being made count.
pub const BRANCH_MAX: usize = 420;
/// Most threads of one process, the first among them.
pub const THREADS_MAX: usize = 1024;
/// Bytes of a host or domain name.
pub const NAME_MAX: usize = 64;

/// Groups of a process besides its own.
pub const GROUPS_MAX: usize = 32;

/// The ids of one kind (credentials(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// Who started it.
    pub real: u32,
    /// As whom it acts.
    pub effective: u32,
    /// Whom it may become again.
    pub saved: u32,
}

/// Numbers of capabilities that are judged here (capabilities(7)).
pub mod capability {
    /// Any ids of the group, and any groups.
    pub const SETGID: u32 = 6;
    /// Any ids of the user.
    pub const SETUID: u32 = 7;
    /// Any capability may be inheritable.
    pub const SETPCAP: u32 = 8;
    /// Any use of a System V segment.
    pub const IPC_OWNER: u32 = 15;
    /// Owns whatever is of System V.
    pub const SYS_ADMIN: u32 = 21;
    /// Less nice.
    pub const SYS_NICE: u32 = 23;
    /// Above limits.
    pub const SYS_RESOURCE: u32 = 24;
    /// Of the last that there is.
    pub const LAST: u32 = 40;
}

/// What a process may do of that which root may: a bit for each number of [`capability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// In force.
    pub effective: u64,
    /// May be put in force.
    pub permitted: u64,
    /// Outlasts that another program runs.
    pub inheritable: u64,
    /// Who gives root up keeps what is permitted, until another program runs (PR_SET_KEEPCAPS).
    pub keeps: bool,
}

impl Default for Capabilities {
    /// Root's.
    fn default() -> Self {
        Capabilities { effective: Self::ALL, permitted: Self::ALL, inheritable: 0, keeps: false }
    }
}

impl Capabilities {
    /// All that there are.
    pub const ALL: u64 = (1 << (capability::LAST + 1)) - 1;

    /// Is a capability in force?
    pub fn has(&self, number: u32) -> bool {
        self.effective >> number & 1 == 1
    }

    /// What a user's next program has of them: root's has all.
    pub fn of_next(self, user: Ids) -> Capabilities {
        let all_if = |is_root| if is_root { Self::ALL } else { 0 };
        let permitted = all_if(user.real == 0 || user.effective == 0);
        Capabilities { effective: all_if(user.effective == 0), permitted, keeps: false, ..self }
    }
}

/// Whose a process is. A fresh one is root's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub users: Ids,
    pub groups: Ids,
    /// Groups besides its own, at most [`GROUPS_MAX`].
    pub others: Vec<u32>,
    pub capabilities: Capabilities,
}

/// A process as others are told of it, as of when it connected or sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    pub process: ProcessId,
    pub user: u32,
    pub group: u32,
}

/// A change of ids of one kind; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdChange {
    /// The effective one; root's are all changed (setuid).
    One(u32),
    /// Real and effective one; the saved one may follow (setreuid).
    Two([Option<u32>; 2]),
    /// Real, effective and saved one (setresuid).
    All([Option<u32>; 3]),
}

/// Bytes of a parent's stack, from its stack pointer on, of which a thread that called vfork
/// ([`Process::fork_prepare`]) is told what the child changed.
pub const VFORK_STACK_BYTES_MAX: u32 = 4096;

/// What a child changed of its parent's stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackChange {
    /// From the stack pointer on.
    pub offset: u32,
    /// What is there now.
    pub bytes: Vec<u8>,
}

impl StackChange {
    /// Most bytes that it takes in a message.
    pub fn message_bytes(&self) -> usize {
        // The offset and the length, each as a varint of 14 bits.
        self.bytes.len() + 4
    }
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
    /// As many processes as the limit allows, or no memory for one more. Remedy: wait for some to
    /// end.
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
    /// R, S, T or Z.
    pub state: char,
    /// Base name, at most 15 bytes.
    pub name: String,
    /// Joined arguments, at most 128 bytes.
    pub command_line: String,
    pub identity: Identity,
    pub pages: u64,
    pub cpu_ns: u64,
    /// Of children that were waited for, and theirs.
    pub children_cpu_ns: u64,
}

/// Process operations. Order: as sent; `wait` may overtake. Limits: `MAX_PROCESSES` in
/// `servers/process`. Rights: a process acts for itself only, and may have the ids that its own ids
/// allow; signals follow the one-user rule (all may signal all but the system).
#[contract(name = "process", version = 8)]
pub trait Process {
    /// First request of the first program's proxy.
    #[op(repeatable)]
    async fn hello(&self) -> Result<Birth, ProcessError>;

    /// First message of a forked child's proxy, which knows from its parent who it is: it runs, and
    /// can be told of signals.
    #[op(oneway)]
    fn here(&self);

    /// Makes a child: process id, empty domain with a proxy that waits, channels to the same
    /// servers. The caller then lets each server `inherit`, does `DomainFork` and `ContextStart`,
    /// which is all; `fork_cancel` if that failed. To waits and signals the child is there from now
    /// on. `TooMany`, also beyond `user_limit`; `Invalid` for a signal that there is not.
    #[op]
    async fn fork_prepare(&self, options: ForkOptions) -> Result<Forked, ProcessError>;

    /// Waits until a child that was made with `is_vfork` runs another program or has ended, and
    /// gives what it changed; asked again and again until that is empty. The child's end always
    /// ends the wait. `NotFound` for another child.
    #[op]
    async fn vfork_wait(&self, child: ProcessId) -> Result<Vec<StackChange>, ProcessError>;

    /// Tells the parent what the caller, which was made with `is_vfork`, changed (at most 700
    /// bytes); with the last of it, the parent's thread goes on. `NotFound` for another caller,
    /// `TooMany` for more than a stack of [`VFORK_STACK_BYTES_MAX`] could change.
    #[op]
    async fn vfork_release(&self, changes: Vec<StackChange>, is_last: bool) -> Result<(), ProcessError>;

    /// Throws an unstarted child away.
    #[op]
    async fn fork_cancel(&self, process: ProcessId) -> Result<(), ProcessError>;

    /// Takes an ended child, or what is new of a living one, or without `take` only tells it;
    /// `None` without `wait` if there is nothing of interest. `NoChild`.
    #[op]
    async fn wait(
        &self,
        target: Target,
        interest: Interest,
        wait: bool,
        take: bool,
    ) -> Result<Option<ChildNews>, ProcessError>;

    /// The caller is about to stop for a stop signal. `false`: it must not, since it is the first
    /// program, or since its group is orphaned and the signal is not SIGSTOP (POSIX).
    #[op]
    async fn stop(&self, number: u8) -> Result<bool, ProcessError>;

    /// The caller goes on after a stop.
    #[op(oneway)]
    fn resumed(&self);

    /// Tells whether the caller may read the terminal whose foreground group is `foreground`. With
    /// `signal`, the group of a caller in the background is sent SIGTTIN.
    #[op]
    async fn terminal_access(&self, foreground: ProcessId, signal: bool) -> Result<TerminalAccess, ProcessError>;

    /// Sends a signal (1..=64; 0 only checks). SIGKILL ends the domain: the target has
    /// ended, and is told to its parent, when all it had is free again. Others become
    /// `signal` events of the target's proxy.
    #[op]
    async fn signal(&self, target: Target, number: u8) -> Result<(), ProcessError>;

    /// The same with data, to one process. `Invalid` for another target, `TooMany` while as many
    /// wait at it as may.
    #[op]
    async fn queue_signal(&self, target: Target, number: u8, code: i32, value: u64) -> Result<(), ProcessError>;

    /// Sets the process group; 0 = the process itself.
    #[op]
    async fn set_group(&self, process: ProcessId, group: ProcessId) -> Result<(), ProcessError>;

    /// Group and session of a process; 0 = the caller.
    #[op(repeatable)]
    async fn groups(&self, process: ProcessId) -> Result<(ProcessId, ProcessId), ProcessError>;

    /// Becomes leader of a new session without a terminal.
    #[op]
    async fn new_session(&self) -> Result<ProcessId, ProcessError>;

    /// Sets one of the caller's timers (below [`TIMERS_MAX`]), which tells by `expired` events;
    /// gives how it stood before. `Invalid`.
    #[op]
    async fn set_alarm(&self, timer: u32, start: TimerStart, interval_ns: u64) -> Result<TimerState, ProcessError>;

    /// How one of them stands. `Invalid`.
    #[op(repeatable)]
    async fn alarm(&self, timer: u32) -> Result<TimerState, ProcessError>;

    /// Whether children that end vanish at once without a wait (the program ignores SIGCHLD), and
    /// whether their stops are told by SIGCHLD. A forked child starts with its parent's choice.
    #[op(oneway)]
    fn watch_children(&self, discard: bool, stops: bool);

    /// Which signal the caller gets when its parent ends, 0 for none: sets that, with a number, and
    /// gives what holds now. A child begins without, and so goes on who changes its effective ids.
    /// `Invalid`.
    #[op]
    async fn parent_death(&self, number: Option<u8>) -> Result<u8, ProcessError>;

    /// Changes the caller's ids of the user, or of the group; gives what they are now, and what it
    /// may. `Denied` for ids that it may not have, and then none is changed.
    #[op]
    async fn set_ids(&self, of_user: bool, change: IdChange) -> Result<(Ids, Capabilities), ProcessError>;

    /// Changes the caller's capabilities. `Denied` for more than are permitted.
    #[op(repeatable)]
    async fn set_capabilities(&self, wanted: Capabilities) -> Result<(), ProcessError>;

    /// Names the caller's groups besides its own. `Denied` for who has not SETGID, `Invalid` for
    /// more than [`GROUPS_MAX`].
    #[op]
    async fn set_groups(&self, groups: Vec<u32>) -> Result<(), ProcessError>;

    /// Another program runs: its name and arguments for `ps`. The caller's effective ids are saved.
    #[op(oneway)]
    fn describe(&self, name: String, command_line: String);

    /// A pipe: description ids of its reading and writing end, at this server's `descriptions`.
    /// `TooMany`.
    #[op]
    async fn pipe(&self) -> Result<(DescriptionId, DescriptionId), ProcessError>;

    /// Opens the named pipe of the file of this number, at this server's `descriptions`, to read,
    /// to write or both. With `wait`, who opens one side waits for somebody at the other; without,
    /// a writer is refused if nobody reads: `NotFound`. `TooMany`, `Invalid` for neither side.
    #[op]
    async fn open_pipe(&self, file: u64, reads: bool, writes: bool, wait: bool) -> Result<DescriptionId, ProcessError>;

    /// Sleeps until woken on a word of memory that processes have in common; `memory` is its
    /// number, which only they know. A process that changes the word after this was taken is to
    /// wake.
    #[op]
    async fn sleep_on(&self, memory: u64, offset: u64, bits: u32) -> Result<(), ProcessError>;

    /// Wakes up to `count` who sleep there and share one of the bits; gives how many.
    #[op]
    async fn wake(&self, memory: u64, offset: u64, count: u32, bits: u32) -> Result<u32, ProcessError>;

    /// A System V shared memory segment by its key, made if that is wanted; it has no memory until
    /// it is attached. `NotFound`, `Exists`, `Denied`, `TooMany`, `Invalid` for one that is
    /// smaller.
    #[op]
    async fn segment(&self, wish: SegmentWish) -> Result<SegmentId, SegmentError>;

    /// Attaches a segment to the caller once more, to be read or to be written too. The caller then
    /// takes its parts. Children that it prepares after that have it as often. `Invalid`, `Denied`.
    #[op]
    async fn attach_segment(&self, id: SegmentId, is_writer: bool) -> Result<Attached, SegmentError>;

    /// Memory in common without key and id: the caller has it once, to write, and children that it
    /// prepares after that have it. It goes with the last process that has it. `TooMany`, `Invalid`
    /// for no pages.
    #[op]
    async fn lend_memory(&self, pages: u64) -> Result<Attached, SegmentError>;

    /// The caller, who was told its number, has such memory once more. `Invalid` once it is gone.
    #[op]
    async fn join_memory(&self, number: u64) -> Result<Attached, SegmentError>;

    /// A part of a segment that the caller has attached: its handle in the *caller's* share, which
    /// forks inherit and the caller drops. `NoMemory`; `Invalid` for what is not attached.
    #[op]
    async fn segment_part(&self, number: u64, part: u32) -> Result<u64, SegmentError>;

    /// The caller has that segment once less.
    #[op(oneway)]
    fn detach_segment(&self, number: u64);

    /// How a segment stands. `Invalid`, `Denied` for who may not read it.
    #[op]
    async fn segment_state(&self, name: SegmentName) -> Result<SegmentState, SegmentError>;

    /// All segments together, and the highest place that one has.
    #[op(repeatable)]
    async fn segments(&self) -> Result<(SegmentsSum, u32), SegmentError>;

    /// Changes a segment. `NotOwner`, `Invalid`.
    #[op]
    async fn change_segment(&self, id: SegmentId, change: SegmentChange) -> Result<(), SegmentError>;

    /// An event counter that stands at `count`, at this server's `descriptions`: eight bytes are
    /// read, which takes all of it or, of a semaphore, one, and eight are written, which adds.
    /// `TooMany`.
    #[op]
    async fn event(&self, count: u64, is_semaphore: bool) -> Result<DescriptionId, ProcessError>;

    /// A timer that is read, at this server's `descriptions`: eight bytes, how often it expired
    /// since they were read last. `is_of_day`: [`TimerStart::At`] counts from 1970. `TooMany`.
    #[op]
    async fn timer(&self, is_of_day: bool) -> Result<DescriptionId, ProcessError>;

    /// Sets such a timer; gives how it stood before. `NotFound` if the caller holds none of that
    /// id, `Invalid` for a description of another kind.
    #[op]
    async fn set_timer(
        &self,
        id: DescriptionId,
        start: TimerStart,
        interval_ns: u64,
    ) -> Result<TimerState, ProcessError>;

    /// How such a timer stands. Errors as for `set_timer`.
    #[op(repeatable)]
    async fn timer_state(&self, id: DescriptionId) -> Result<TimerState, ProcessError>;

    /// A handle of a process, at this server's `descriptions`: ready to be read once that has
    /// ended. `NotFound`, `TooMany`.
    #[op]
    async fn handle(&self, process: ProcessId) -> Result<DescriptionId, ProcessError>;

    /// The host's name and its domain's.
    #[op(repeatable)]
    async fn host(&self) -> Result<(String, String), ProcessError>;

    /// Names the host, or its domain, for all programs. `Invalid` for more than [`NAME_MAX`] bytes.
    #[op(repeatable)]
    async fn name_host(&self, is_domain: bool, name: String) -> Result<(), ProcessError>;

    /// The process with the smallest id of at least `from`; `None` at the end. For /proc.
    #[op(repeatable)]
    async fn list(&self, from: ProcessId) -> Result<Option<ProcessLine>, ProcessError>;

    /// All its ids, ascending, at most 200 from `from` on.
    #[op(repeatable)]
    async fn ids(&self, from: ProcessId) -> Result<Vec<ProcessId>, ProcessError>;

    /// Tells which of these tickets (`descriptions.export`), at most 80, lie in a message or with
    /// its receiver. For the servers that exported them.
    #[op(repeatable)]
    async fn unsettled(&self, tickets: Vec<u64>) -> Result<Vec<u64>, ProcessError>;

    /// The caller received messages with these tickets, and claimed of them what it wants.
    #[op(oneway)]
    fn claimed(&self, tickets: Vec<u64>);

    /// What is sent to the socket that the file of this number stands for is for the machine's log.
    /// For the file server alone.
    #[op(oneway)]
    fn log_at(&self, file: u64);

    /// How the first program ended; waits for that. Who asks ends the machine then, when all that
    /// programs wrote has left it.
    #[op(repeatable)]
    async fn first_ended(&self) -> Result<Ended, ProcessError>;

    /// Nobody will claim what the client, a server, exported under this ticket.
    #[event]
    fn settled(&self, ticket: u64);

    /// A signal for the client.
    #[event]
    fn signal_sent(&self, number: u8, cause: SignalCause);

    /// A timer of `set_alarm` expired, so many times since it was told last.
    #[event]
    fn expired(&self, timer: u32, times: u64);

    /// The client's parent ended; this process is its parent now.
    #[event]
    fn adopted(&self, parent: ProcessId);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_in_order_is_told_from_a_proxys_failure() {
        for how in [Ended::Exited(0), Ended::Exited(255), Ended::Signalled(1), Ended::Signalled(64)] {
            assert_eq!(Ended::from_status(how.to_status()), Some(how));
        }
        for status in [0, 1, 101, 102, 256, IN_ORDER << 1, IN_ORDER | (2 * BY_SIGNAL)] {
            assert_eq!(Ended::from_status(status), None);
        }
    }

    #[test]
    fn an_end_is_told_as_a_shell_has_it_and_comes_back_from_a_status() {
        let ends = [(Ended::Exited(0), 0), (Ended::Exited(255), 255), (Ended::Signalled(9), 137)];
        for (end, shell) in ends {
            assert_eq!((end.shell_status(), Ended::from_status(end.to_status())), (shell, Some(end)));
        }
        assert!([0, 1, 137, 1 << 31].iter().all(|plain| Ended::from_status(*plain).is_none()));
    }

    #[test]
    fn a_capability_is_in_force_if_its_bit_is() {
        let one = Capabilities { effective: 1 << capability::SYS_NICE, ..Capabilities::default() };
        let has = (0..=capability::LAST).filter(|number| one.has(*number)).collect::<Vec<_>>();
        assert_eq!(has, [capability::SYS_NICE]);
        assert!((0..=capability::LAST).all(|number| Capabilities::default().has(number)));
    }

    #[test]
    fn the_next_program_of_root_has_all_and_of_another_user_nothing() {
        let some = Capabilities { effective: 1, permitted: 3, inheritable: 2, keeps: true };
        let next = |real, effective| {
            let next = some.of_next(Ids { real, effective, saved: 0 });
            assert_eq!((next.inheritable, next.keeps), (2, false));
            [next.effective, next.permitted]
        };
        const ALL: u64 = Capabilities::ALL;
        assert_eq!([next(0, 0), next(7, 0), next(0, 7), next(7, 7)], [[ALL, ALL], [ALL, ALL], [0, ALL], [0, 0]]);
    }

    #[test]
    fn a_change_of_the_stack_takes_no_more_of_a_message_than_it_says() {
        let taken = |offset: u32, bytes: usize| {
            let change = StackChange { offset, bytes: [7].repeat(bytes) };
            let mut buffer = [0; channel::BODY_BYTES];
            (channel::encode(&change, &mut buffer).map(<[u8]>::len), change.message_bytes())
        };
        for (offset, bytes) in [(0, 0), (127, 1), (128, 127), (VFORK_STACK_BYTES_MAX - 1, 128)] {
            let (encoded, said) = taken(offset, bytes);
            assert!(encoded.is_some_and(|encoded| encoded <= said && said <= encoded + 2), "{offset} {bytes}");
        }
        assert_eq!(taken(VFORK_STACK_BYTES_MAX - 1, 128), (Some(132), 132));
    }
}
