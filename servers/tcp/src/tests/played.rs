//! The process server, as far as it is asked which tickets lie in a message.

use std::cell::RefCell;
use std::rc::Rc;

use channel::{Layout, Peer, loopback};
use contracts::descriptions::DescriptionId;
use contracts::process::*;
use contracts::shared_memory::*;

/// Tickets that lie in messages.
#[derive(Default)]
pub struct Played {
    pub in_flight: RefCell<Vec<u64>>,
}

impl Played {
    pub fn client(self: &Rc<Played>) -> ProcessClient {
        let (client, served) = loopback(Layout::default());
        runtime::spawn(serve_process(self.clone(), served));
        ProcessClient::new(client)
    }
}

/// Operations that a server of sockets does not ask for.
macro_rules! never {
    ($($name:ident($($of:ty),*) -> $gives:ty;)*) => {
        $(async fn $name(&self, _: &Peer, $(_: $of),*) -> $gives {
            unreachable!("the server asks for it")
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
        list(ProcessId) -> Result<Option<ProcessLine>, ProcessError>;
        ids(ProcessId) -> Result<Vec<ProcessId>, ProcessError>;
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
}
