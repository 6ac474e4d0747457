//! The `process` contract over the server's state.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Deref;

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::process::*;
use contracts::shared_memory::*;
use process_core::notices::Notice;
use process_core::table::{Phase, SIGNAL_LAST, Waited};
use runtime::Watch;

use crate::descriptions;
use crate::server::{Server, of_handle};

const SIGTTIN: u8 = 21;
/// Ids in one answer: 200 of at most 3 bytes, below the message limit.
const IDS_MAX: usize = 200;

/// A parent waits for the end of a vfork; when this is dropped, it asks no more.
struct Asked<'s> {
    server: &'s Server,
    parent: ProcessId,
    child: ProcessId,
    is_told: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.server.vforks.borrow_mut().abandon(self.parent, self.child);
        }
    }
}

/// The server as channels see it; the shared reference lets requests start tasks of their own.
pub struct Service(pub Rc<Server>);

impl Deref for Service {
    type Target = Rc<Server>;
    fn deref(&self) -> &Rc<Server> {
        &self.0
    }
}

impl ProcessServer for Service {
    async fn hello(&self, peer: &Peer) -> Result<Birth, ProcessError> {
        let process = self.caller(peer)?;
        let table = self.table.borrow();
        let entry = table.get(process).ok_or(ProcessError::NotFound)?;
        self.events.borrow_mut().insert(process, ProcessEvents::new(peer));
        self.deliver_early(process);
        Ok(Birth { process, parent: entry.parent, group: entry.group, session: entry.session })
    }

    fn here(&self, peer: &Peer) {
        if let Ok(process) = self.caller(peer) {
            self.table.borrow_mut().start(process);
            self.events.borrow_mut().insert(process, ProcessEvents::new(peer));
            self.deliver_early(process);
            self.tell_parent(process);
        }
    }

    async fn fork_prepare(&self, peer: &Peer, options: ForkOptions) -> Result<Forked, ProcessError> {
        let parent = self.caller(peer)?;
        if options.end_signal > SIGNAL_LAST {
            return Err(ProcessError::Invalid);
        }
        // What was begun is ended in order, also if the parent is killed meanwhile.
        let made = Rc::new((RefCell::new(None), Watch::default()));
        let (server, making) = (self.0.clone(), made.clone());
        runtime::spawn(async move {
            let forked = server.prepare(parent, options).await;
            if let (Ok(forked), 1) = (&forked, Rc::strong_count(&making)) {
                server.cancel(forked.process);
            }
            making.0.replace(Some(forked));
            making.1.changed();
        });
        match made.1.until(|| made.0.take()).await {
            Err(ProcessError::TooMany) => {
                self.refuse(parent).await;
                Err(ProcessError::TooMany)
            }
            made => {
                self.refusals.borrow_mut().remove(&parent);
                made
            }
        }
    }

    async fn fork_cancel(&self, peer: &Peer, process: ProcessId) -> Result<(), ProcessError> {
        self.table.borrow().prepared(self.caller(peer)?, process)?;
        self.cancel(process);
        Ok(())
    }

    async fn vfork_wait(&self, peer: &Peer, child: ProcessId) -> Result<Vec<StackChange>, ProcessError> {
        let parent = self.caller(peer)?;
        let mut asked = Asked { server: self, parent, child, is_told: false };
        let taken = self.changed.until(|| self.vforks.borrow_mut().take_changes(parent, child)).await;
        asked.is_told = true;
        taken
    }

    async fn vfork_release(&self, peer: &Peer, changes: Vec<StackChange>, is_last: bool) -> Result<(), ProcessError> {
        let child = self.caller(peer)?;
        self.vforks.borrow_mut().add_changes(child, changes)?;
        if is_last && self.vforks.borrow_mut().complete(child) {
            self.changed.changed();
        }
        Ok(())
    }

    async fn wait(
        &self,
        peer: &Peer,
        target: Target,
        interest: Interest,
        wait: bool,
        take: bool,
    ) -> Result<Option<ChildNews>, ProcessError> {
        let caller = self.caller(peer)?;
        let target = match self.resolve(peer, target) {
            Err(ProcessError::NotFound) => return Err(ProcessError::NoChild),
            target => target?,
        };
        let look = || match self.table.borrow_mut().wait(caller, target, interest, take) {
            Waited::Found(news) => Some(Ok(Some(news))),
            Waited::NoChild => Some(Err(ProcessError::NoChild)),
            Waited::None if wait => None,
            Waited::None => Some(Ok(None)),
        };
        self.changed.until(look).await
    }

    async fn stop(&self, peer: &Peer, number: u8) -> Result<bool, ProcessError> {
        let caller = self.caller(peer)?;
        let stopped = self.table.borrow_mut().stop(caller, number);
        if let Some(parent) = stopped {
            self.tell(caller, parent, ChildState::Stopped(number));
        }
        Ok(stopped.is_some())
    }

    fn resumed(&self, peer: &Peer) {
        let Ok(caller) = self.caller(peer) else { return };
        let resumed = self.table.borrow_mut().resumed(caller);
        if let Some(parent) = resumed {
            self.tell(caller, parent, ChildState::Continued);
        }
    }

    async fn terminal_access(
        &self,
        peer: &Peer,
        foreground: ProcessId,
        signal: bool,
    ) -> Result<TerminalAccess, ProcessError> {
        let caller = self.caller(peer)?;
        let may_use = self.table.borrow().may_use_terminal(caller, foreground);
        match may_use {
            Ok(()) => Ok(TerminalAccess::Foreground),
            Err(true) => Ok(TerminalAccess::Orphaned),
            Err(false) if !signal => Ok(TerminalAccess::Background),
            Err(false) => {
                let group = self.table.borrow().signalled(caller, Target::OwnGroup)?;
                group.into_iter().for_each(|id| self.notify(id, Notice::Signal(SIGTTIN, SignalCause::Process(0))));
                Ok(TerminalAccess::Background)
            }
        }
    }

    async fn signal(&self, peer: &Peer, target: Target, number: u8) -> Result<(), ProcessError> {
        // The console is no process: it signals for the user who typed, and Linux names such a
        // sender 0. The monitor vouches for its name.
        let caller = if peer.name() == "console" { 0 } else { self.caller(peer)? };
        if number > SIGNAL_LAST {
            return Err(ProcessError::Invalid);
        }
        // Before the first program there is nobody else whom the user could mean.
        if caller == 0 && number != 0 && self.keep_for_first(number) {
            return Ok(());
        }
        let target = self.resolve(peer, target)?;
        let reached = self.table.borrow().signalled(caller, target)?;
        if number != 0 {
            reached.into_iter().for_each(|id| self.deliver(id, number, SignalCause::Process(caller)));
        }
        Ok(())
    }

    async fn queue_signal(
        &self,
        peer: &Peer,
        target: Target,
        number: u8,
        code: i32,
        value: u64,
    ) -> Result<(), ProcessError> {
        let process = self.caller(peer)?;
        let target = self.resolve(peer, target)?;
        if number > SIGNAL_LAST || !matches!(target, Target::Process(_)) {
            return Err(ProcessError::Invalid);
        }
        for id in self.table.borrow().signalled(process, target)? {
            if self.early.borrow().get(&id).is_some_and(|notices| !notices.has_room()) {
                return Err(ProcessError::TooMany);
            }
            if number != 0 {
                self.deliver(id, number, SignalCause::Queued { process, code, value });
            }
        }
        Ok(())
    }

    async fn set_group(&self, peer: &Peer, process: ProcessId, group: ProcessId) -> Result<(), ProcessError> {
        let caller = self.caller(peer)?;
        self.table.borrow_mut().set_group(caller, process, group)
    }

    async fn groups(&self, peer: &Peer, process: ProcessId) -> Result<(ProcessId, ProcessId), ProcessError> {
        let caller = self.caller(peer)?;
        self.table.borrow().groups(caller, process)
    }

    async fn new_session(&self, peer: &Peer) -> Result<ProcessId, ProcessError> {
        let caller = self.caller(peer)?;
        self.table.borrow_mut().new_session(caller)
    }

    async fn set_alarm(
        &self,
        peer: &Peer,
        timer: u32,
        start: TimerStart,
        interval_ns: u64,
    ) -> Result<TimerState, ProcessError> {
        let caller = self.caller(peer)?;
        if timer >= TIMERS_MAX {
            return Err(ProcessError::Invalid);
        }
        let now = descriptions::now(false);
        let before = self.alarms.borrow_mut().set((caller, timer), now, start, interval_ns);
        self.opened.timers_changed.changed();
        Ok(before)
    }

    async fn alarm(&self, peer: &Peer, timer: u32) -> Result<TimerState, ProcessError> {
        let caller = self.caller(peer)?;
        let state = self.alarms.borrow().state((caller, timer), runtime::now_ns());
        if timer < TIMERS_MAX { Ok(state) } else { Err(ProcessError::Invalid) }
    }

    fn watch_children(&self, peer: &Peer, discard: bool, stops: bool) {
        if let Ok(caller) = self.caller(peer) {
            self.table.borrow_mut().watch_children(caller, discard, stops);
        }
    }

    async fn parent_death(&self, peer: &Peer, number: Option<u8>) -> Result<u8, ProcessError> {
        let caller = self.caller(peer)?;
        self.table.borrow_mut().parent_death(caller, number)
    }

    async fn set_ids(&self, peer: &Peer, of_user: bool, change: IdChange) -> Result<(Ids, Capabilities), ProcessError> {
        let caller = self.caller(peer)?;
        self.table.borrow_mut().set_ids(caller, of_user, change)
    }

    async fn set_capabilities(&self, peer: &Peer, wanted: Capabilities) -> Result<(), ProcessError> {
        let caller = self.caller(peer)?;
        self.table.borrow_mut().set_capabilities(caller, wanted)
    }

    async fn set_groups(&self, peer: &Peer, groups: Vec<u32>) -> Result<(), ProcessError> {
        let caller = self.caller(peer)?;
        self.table.borrow_mut().set_groups(caller, groups)
    }

    fn describe(&self, peer: &Peer, name: String, command_line: String) {
        if let Ok(caller) = self.caller(peer) {
            let begins = self.table.borrow_mut().describe(caller, &name, &command_line);
            if let Some(domain) = begins {
                runtime::spawn(self.0.clone().begin_turns(domain));
            }
        }
    }

    async fn pipe(&self, peer: &Peer) -> Result<(DescriptionId, DescriptionId), ProcessError> {
        self.opened.act(|table| table.pipe(peer.id())).map_err(|_| ProcessError::TooMany)
    }

    async fn open_pipe(
        &self,
        peer: &Peer,
        file: u64,
        reads: bool,
        writes: bool,
        wait: bool,
    ) -> Result<DescriptionId, ProcessError> {
        self.caller(peer)?;
        self.opened.open_named(peer.id(), file, (reads, writes), wait).await.map_err(|error| match error {
            DescriptionError::NotFound => ProcessError::NotFound,
            DescriptionError::Invalid => ProcessError::Invalid,
            DescriptionError::TooMany => ProcessError::TooMany,
            _ => ProcessError::Failed,
        })
    }

    async fn event(&self, peer: &Peer, count: u64, is_semaphore: bool) -> Result<DescriptionId, ProcessError> {
        self.opened.act(|table| table.event(peer.id(), count, is_semaphore)).map_err(|_| ProcessError::TooMany)
    }

    async fn timer(&self, peer: &Peer, is_of_day: bool) -> Result<DescriptionId, ProcessError> {
        self.opened.act(|table| table.timer(peer.id(), is_of_day)).map_err(|_| ProcessError::TooMany)
    }

    async fn set_timer(
        &self,
        peer: &Peer,
        id: DescriptionId,
        start: TimerStart,
        interval_ns: u64,
    ) -> Result<TimerState, ProcessError> {
        self.opened.set_timer(peer.id(), id, start, interval_ns).map_err(|error| of_handle(&error))
    }

    async fn timer_state(&self, peer: &Peer, id: DescriptionId) -> Result<TimerState, ProcessError> {
        self.opened.timer_state(peer.id(), id).map_err(|error| of_handle(&error))
    }

    async fn sleep_on(&self, _: &Peer, memory: u64, offset: u64, bits: u32) -> Result<(), ProcessError> {
        self.futexes.sleep((memory, offset), bits).await;
        Ok(())
    }

    async fn wake(&self, _: &Peer, memory: u64, offset: u64, count: u32, bits: u32) -> Result<u32, ProcessError> {
        Ok(self.futexes.wake((memory, offset), count, bits))
    }

    async fn segment(&self, peer: &Peer, wish: SegmentWish) -> Result<SegmentId, SegmentError> {
        self.find_segment(peer, wish)
    }

    async fn attach_segment(&self, peer: &Peer, id: SegmentId, is_writer: bool) -> Result<Attached, SegmentError> {
        self.0.attach_segment(peer, id, is_writer)
    }

    async fn lend_memory(&self, peer: &Peer, pages: u64) -> Result<Attached, SegmentError> {
        self.0.lend_memory(peer, pages)
    }

    async fn join_memory(&self, peer: &Peer, number: u64) -> Result<Attached, SegmentError> {
        self.0.join_memory(peer, number)
    }

    async fn segment_part(&self, peer: &Peer, number: u64, part: u32) -> Result<u64, SegmentError> {
        self.0.segment_part(peer, number, part).await
    }

    fn detach_segment(&self, peer: &Peer, number: u64) {
        self.0.detach_segment(peer, number);
    }

    async fn segment_state(&self, peer: &Peer, name: SegmentName) -> Result<SegmentState, SegmentError> {
        self.0.segment_state(peer, name)
    }

    async fn segments(&self, _: &Peer) -> Result<(SegmentsSum, u32), SegmentError> {
        Ok(self.shared_memory.borrow().sum())
    }

    async fn change_segment(&self, peer: &Peer, id: SegmentId, change: SegmentChange) -> Result<(), SegmentError> {
        self.0.change_segment(peer, id, change)
    }

    async fn handle(&self, peer: &Peer, process: ProcessId) -> Result<DescriptionId, ProcessError> {
        let (client, is_over) = {
            let table = self.table.borrow();
            let found = table.get(process).ok_or(ProcessError::NotFound)?;
            (found.client, matches!(found.phase, Phase::Zombie(_)))
        };
        let made = self.opened.act(|table| table.handle(peer.id(), process, client, is_over));
        made.map_err(|_| ProcessError::TooMany)
    }

    async fn host(&self, _: &Peer) -> Result<(String, String), ProcessError> {
        let [host, domain] = self.names.borrow().clone();
        Ok((host, domain))
    }

    async fn name_host(&self, _: &Peer, is_domain: bool, name: String) -> Result<(), ProcessError> {
        if name.len() > NAME_MAX {
            return Err(ProcessError::Invalid);
        }
        self.names.borrow_mut()[usize::from(is_domain)] = name;
        Ok(())
    }

    async fn unsettled(&self, _peer: &Peer, tickets: Vec<u64>) -> Result<Vec<u64>, ProcessError> {
        Ok(self.opened.act(|table| table.unsettled(&tickets)))
    }

    fn claimed(&self, peer: &Peer, tickets: Vec<u64>) {
        self.opened.act(|table| table.claimed(peer.id(), &tickets));
    }

    fn log_at(&self, peer: &Peer, file: u64) {
        // The monitor vouches for its name.
        if peer.name() == "fs" {
            self.opened.act(|table| table.open_log(file));
        }
    }

    async fn list(&self, _peer: &Peer, from: ProcessId) -> Result<Option<ProcessLine>, ProcessError> {
        let found = {
            let table = self.table.borrow();
            let first = table.ids(from).next();
            first.and_then(|id| table.get(id).map(|process| (id, process.clone())))
        };
        let Some((id, process)) = found else { return Ok(None) };
        let zombie = matches!(process.phase, Phase::Zombie(_));
        let (pages, cpu_ns) = match zombie {
            true => (0, process.cpu_ns),
            false => self.spawn.usage(process.domain).await.unwrap_or((0, 0)),
        };
        Ok(Some(ProcessLine {
            process: id,
            parent: process.parent,
            group: process.group,
            session: process.session,
            state: if zombie {
                'Z'
            } else if process.stopped {
                'T'
            } else {
                'S'
            },
            name: process.name,
            command_line: process.command_line,
            identity: process.identity,
            pages,
            cpu_ns,
            children_cpu_ns: process.children_cpu_ns,
        }))
    }

    async fn ids(&self, _peer: &Peer, from: ProcessId) -> Result<Vec<ProcessId>, ProcessError> {
        Ok(self.table.borrow().ids(from).take(IDS_MAX).collect())
    }

    async fn first_ended(&self, _: &Peer) -> Result<Ended, ProcessError> {
        self.is_attended.set(true);
        self.changed.changed();
        Ok(self.changed.until(|| self.ended.get()).await)
    }

    fn peer_restarted(&self, peer: &Peer) {
        // The next client must not hear what was meant for the one before.
        self.events.borrow_mut().retain(|_, events| events.peer() != peer);
    }
}
