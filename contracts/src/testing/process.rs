//! A process server that is played: it tells processes, and which tickets lie in messages.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use channel::Peer;

use crate::descriptions::DescriptionId;
use crate::process::*;
use crate::shared_memory::*;

/// Ids in one answer.
const IDS_MAX: usize = 5;
/// Nobody has to ask more often for all there are.
const ASKED_MAX: u32 = 100;

/// What it tells. Servers ask for nothing else: a call that is not one of these panics.
#[derive(Default)]
pub struct Played {
    /// Processes, by their ids in ascending order.
    pub ids: RefCell<Vec<ProcessId>>,
    /// From whatever id it is asked on, the first ones are told.
    pub is_stuck: Cell<bool>,
    /// Tickets that lie in messages.
    pub in_flight: RefCell<Vec<u64>>,
    asked: Cell<u32>,
}

/// Whose the process with a number is: user and group as which it acts.
pub fn acts_as(id: ProcessId) -> (u32, u32) {
    (1000 + id, 2000 + id)
}

/// Operations that no server asks for.
macro_rules! never {
    ($($name:ident($($of:ty),*) -> $gives:ty;)*) => {
        $(async fn $name(&self, _: &Peer, $(_: $of),*) -> $gives {
            unreachable!("no server asks for it")
        })*
    };
}

impl ProcessServer for Played {
    never! {
        hello() -> Result<Birth, ProcessError>;
        fork_prepare(ForkOptions) -> Result<Forked, ProcessError>;
        vfork_wait(ProcessId) -> Result<Vec<StackChange>, ProcessError>;
        vfork_release(Vec<StackChange>, bool) -> Result<(), ProcessError>;
        fork_cancel(ProcessId) -> Result<(), ProcessError>;
        wait(Target, Interest, bool, bool) -> Result<Option<ChildNews>, ProcessError>;
        stop(u8) -> Result<bool, ProcessError>;
        terminal_access(ProcessId, bool) -> Result<TerminalAccess, ProcessError>;
        signal(Target, u8) -> Result<(), ProcessError>;
        queue_signal(Target, u8, i32, u64) -> Result<(), ProcessError>;
        set_group(ProcessId, ProcessId) -> Result<(), ProcessError>;
        groups(ProcessId) -> Result<(ProcessId, ProcessId), ProcessError>;
        new_session() -> Result<ProcessId, ProcessError>;
        set_alarm(u32, TimerStart, u64) -> Result<TimerState, ProcessError>;
        alarm(u32) -> Result<TimerState, ProcessError>;
        parent_death(Option<u8>) -> Result<u8, ProcessError>;
        set_ids(bool, IdChange) -> Result<(Ids, Capabilities), ProcessError>;
        set_capabilities(Capabilities) -> Result<(), ProcessError>;
        set_groups(Vec<u32>) -> Result<(), ProcessError>;
        pipe() -> Result<(DescriptionId, DescriptionId), ProcessError>;
        open_pipe(u64, bool, bool, bool) -> Result<DescriptionId, ProcessError>;
        sleep_on(u64, u64, u32) -> Result<(), ProcessError>;
        wake(u64, u64, u32, u32) -> Result<u32, ProcessError>;
        segment(SegmentWish) -> Result<SegmentId, SegmentError>;
        attach_segment(SegmentId, bool) -> Result<Attached, SegmentError>;
        lend_memory(u64) -> Result<Attached, SegmentError>;
        join_memory(u64) -> Result<Attached, SegmentError>;
        segment_part(u64, u32) -> Result<u64, SegmentError>;
        segment_state(SegmentName) -> Result<SegmentState, SegmentError>;
        segments() -> Result<(SegmentsSum, u32), SegmentError>;
        change_segment(SegmentId, SegmentChange) -> Result<(), SegmentError>;
        event(u64, bool) -> Result<DescriptionId, ProcessError>;
        timer(bool) -> Result<DescriptionId, ProcessError>;
        set_timer(DescriptionId, TimerStart, u64) -> Result<TimerState, ProcessError>;
        timer_state(DescriptionId) -> Result<TimerState, ProcessError>;
        handle(ProcessId) -> Result<DescriptionId, ProcessError>;
        host() -> Result<(String, String), ProcessError>;
        name_host(bool, String) -> Result<(), ProcessError>;
        first_ended() -> Result<Ended, ProcessError>;
    }

    fn here(&self, _: &Peer) {}
    fn resumed(&self, _: &Peer) {}
    fn watch_children(&self, _: &Peer, _: bool, _: bool) {}
    fn describe(&self, _: &Peer, _: String, _: String) {}
    fn detach_segment(&self, _: &Peer, _: u64) {}
    fn claimed(&self, _: &Peer, _: Vec<u64>) {}
    fn log_at(&self, _: &Peer, _: u64) {}

    async fn unsettled(&self, _: &Peer, tickets: Vec<u64>) -> Result<Vec<u64>, ProcessError> {
        let in_flight = self.in_flight.borrow();
        Ok(tickets.into_iter().filter(|ticket| in_flight.contains(ticket)).collect())
    }

    async fn list(&self, _: &Peer, from: ProcessId) -> Result<Option<ProcessLine>, ProcessError> {
        let found = self.ids.borrow().iter().copied().find(|id| *id >= from);
        Ok(found.map(|process| {
            let (user, group) = acts_as(process);
            let ids = |effective| Ids { real: 1, effective, saved: 2 };
            ProcessLine {
                process,
                parent: 1,
                group: process,
                session: 1,
                state: 'S',
                name: format!("name-{process}"),
                command_line: String::new(),
                identity: Identity { users: ids(user), groups: ids(group), ..Identity::default() },
                pages: 9,
                cpu_ns: 0,
                children_cpu_ns: 0,
            }
        }))
    }

    async fn ids(&self, _: &Peer, from: ProcessId) -> Result<Vec<ProcessId>, ProcessError> {
        self.asked.set(self.asked.get() + 1);
        assert!(self.asked.get() <= ASKED_MAX, "it is asked for ever");
        let from = if self.is_stuck.get() { 0 } else { from };
        Ok(self.ids.borrow().iter().copied().filter(|id| *id >= from).take(IDS_MAX).collect())
    }
}
