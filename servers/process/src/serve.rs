//! The `process` contract over the table.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Deref;

use abi::{DeathCause, Handle};
use channel::{CallError, Peer, queued};
use contracts::descriptions::DescriptionId;
use contracts::process::*;
use contracts::spawn::{DOMAINS_AT_ONCE, Death, DomainId, LinuxDomain, SpawnClient, SpawnError};
use process_core::table::{FIRST, Phase, Table, Waited};
use runtime::TaskId;
use runtime::Watch;

use crate::pipes::Pipes;

const SIGHUP: u8 = 1;
const SIGKILL: u8 = 9;
const SIGSEGV: u8 = 11;
const SIGCHLD: u8 = 17;
const SIGCONT: u8 = 18;
const SIGTTIN: u8 = 21;
const SIGNAL_LAST: u8 = 64;
/// Ids in one answer: 200 of at most 3 bytes, below the message limit.
const IDS_MAX: usize = 200;

struct Alarm {
    task: TaskId,
    at_ns: u64,
}

/// All of the server's state.
pub struct Server {
    spawn: SpawnClient,
    pipes: Rc<Pipes>,
    power: Option<Handle>,
    table: RefCell<Table>,
    /// Where to send signals, by process.
    events: RefCell<BTreeMap<ProcessId, ProcessEvents>>,
    /// Signals for processes that run but have not said hello yet, or have not read those before:
    /// bit n-1 = signal n, with the last sender.
    early: RefCell<BTreeMap<ProcessId, (u64, ProcessId)>>,
    alarms: RefCell<BTreeMap<ProcessId, Alarm>>,
    /// Forks refused in a row, by the parent.
    refusals: RefCell<BTreeMap<ProcessId, u32>>,
    /// Domains of children that nobody started, while they are ended.
    discarded: RefCell<BTreeSet<DomainId>>,
    /// Some process ended, stopped or was continued.
    changed: Watch,
    /// How the first program ended, and whether somebody asked for that.
    ended: Cell<Option<Ended>>,
    is_attended: Cell<bool>,
}

/// A refused fork waits for its answer, each time twice as long as before until one is granted:
/// whoever asks again and again spends no time of others, and whoever meets the limit once hardly
/// notices.
const REFUSED_PAUSE_FIRST_NS: u64 = 1_000_000;
/// A console that starts, or starts again, asks for the end of the first program within this.
const ATTENDED_NS: u64 = 2_000_000_000;
/// At most 2^9 times the first: half a second.
const REFUSED_DOUBLINGS_MAX: u32 = 9;

/// Asks for the first program's domain and starts it, if `etc/run` names a program.
pub async fn start_first(server: Rc<Server>, run: Option<&'static [u8]>) {
    if let Some(run) = run
        && system::decode::<system::Run>(run).is_ok_and(|run| run.arguments.is_empty())
    {
        return;
    }
    let made = match first_domain(&server.spawn).await {
        Ok(made) => made,
        Err(error) => return runtime::log!("the first program has no domain: {error:?}"),
    };
    server.table.borrow_mut().add_first(made.domain, made.client);
    if let Err(error) = server.spawn.start(made.domain).await {
        runtime::log!("the first program does not start: {error:?}");
    }
}

/// The first program's domain. Its servers may still be starting: `NotFound` and `Failed` are tried
/// again for a while.
async fn first_domain(spawn: &SpawnClient) -> Result<LinuxDomain, CallError<SpawnError>> {
    const LIMIT_NS: u64 = 10_000_000_000;
    const PAUSE_NS: u64 = 2_000_000;
    let give_up_ns = runtime::now_ns() + LIMIT_NS;
    loop {
        match spawn.linux(None, None, 0, false).await {
            Err(CallError::Server(SpawnError::NotFound | SpawnError::Failed)) if runtime::now_ns() < give_up_ns => {
                runtime::sleep_until(runtime::now_ns() + PAUSE_NS).await;
            }
            other => return other,
        }
    }
}

impl Server {
    /// Nothing runs yet. `power` ends the machine with the first program.
    pub fn new(spawn: SpawnClient, pipes: Rc<Pipes>, power: Option<Handle>) -> Server {
        Server {
            spawn,
            pipes,
            power,
            table: RefCell::default(),
            events: RefCell::default(),
            early: RefCell::default(),
            alarms: RefCell::default(),
            refusals: RefCell::default(),
            discarded: RefCell::default(),
            changed: Watch::default(),
            ended: Cell::default(),
            is_attended: Cell::default(),
        }
    }

    fn caller(&self, peer: &Peer) -> Result<ProcessId, ProcessError> {
        self.table.borrow().by_client(peer.id()).ok_or(ProcessError::NotFound)
    }

    /// The kernel says a domain is gone, by its proxy's own word or otherwise: only now has its
    /// process ended.
    pub fn domain_died(self: &Rc<Self>, death: &Death) {
        let Some(id) = self.table.borrow().by_domain(death.domain) else { return };
        if self.discarded.borrow_mut().remove(&death.domain) {
            return self.table.borrow_mut().cancel(id);
        }
        let (how, in_order) = match DeathCause::decode(death.cause) {
            Some(DeathCause::Exit) => match Ended::from_status(death.status) {
                Some(how) => (how, true),
                None => (Ended::Exited(death.status as u8), false),
            },
            Some(DeathCause::Exception | DeathCause::BadCall) => (Ended::Signalled(SIGSEGV), false),
            _ => (Ended::Signalled(SIGKILL), true),
        };
        if !in_order {
            runtime::log!("process {id}: its proxy ended ({death:?})");
        }
        // Its pipe ends close before its parent hears of the end, as on Linux.
        let client = self.table.borrow().get(id).map_or(0, |process| process.client);
        self.pipes.forget(client..=client, |_| true);
        self.end(id, how);
    }

    /// Deaths may have been told and not heard: asks which domains are there. How those ended that
    /// are not is not known any more.
    pub async fn look_for_dead(self: Rc<Self>) {
        let mut missing: BTreeSet<DomainId> = self.table.borrow().living_domains().into_iter().collect();
        let mut from = 0;
        loop {
            let there = match queued(|| self.spawn.domains(from)).await {
                Ok(there) => there,
                Err(error) => return runtime::log!("who ended is not known: {error:?}"),
            };
            missing.retain(|domain| !there.contains(domain));
            match there.last() {
                Some(last) if there.len() == DOMAINS_AT_ONCE => from = last + 1,
                _ => break,
            }
        }
        for domain in missing {
            let (cause, status) = (DeathCause::Killed as u64, 0);
            self.domain_died(&Death { domain, cause, status, address: 0, rip: 0, cpu_ns: 0 });
        }
    }

    fn end(self: &Rc<Self>, id: ProcessId, how: Ended) {
        let Some(effect) = self.table.borrow_mut().end(id, how) else { return };
        self.events.borrow_mut().remove(&id);
        self.early.borrow_mut().remove(&id);
        self.refusals.borrow_mut().remove(&id);
        if let Some(alarm) = self.alarms.borrow_mut().remove(&id) {
            runtime::abort(alarm.task);
        }
        if effect.machine_ends {
            self.ended.set(Some(how));
        }
        if let Some(parent) = effect.parent {
            self.notify(parent, SIGCHLD, id);
        }
        for domain in effect.unborn {
            runtime::spawn(self.clone().discard(domain));
        }
        for child in effect.adopted {
            self.tell_parent(child);
        }
        for process in effect.stranded {
            self.notify(process, SIGHUP, 0);
            self.notify(process, SIGCONT, 0);
        }
        self.changed.changed();
    }

    /// A process stopped or was continued, and this parent wants to hear of it.
    fn tell(self: &Rc<Self>, id: ProcessId, parent: Option<ProcessId>) {
        if let Some(parent) = parent {
            self.notify(parent, SIGCHLD, id);
        }
        self.changed.changed();
    }

    /// Ends the machine with the first program, if nobody asks to do so.
    pub async fn end_unattended(self: Rc<Self>) {
        let how = self.changed.until(|| self.ended.get()).await;
        let is_attended = self.changed.until(|| self.is_attended.get().then_some(()));
        if runtime::timeout(ATTENDED_NS, is_attended).await.is_err() {
            self.end_machine(how);
        }
    }

    fn end_machine(&self, how: Ended) {
        let status = how.shell_status();
        let Some(power) = self.power else {
            return runtime::log!("the first program ended with status {status}");
        };
        let error = sys::power_off(power, status.into());
        runtime::log!("cannot end the machine: {error:?}");
    }

    fn notify(self: &Rc<Self>, id: ProcessId, number: u8, sender: ProcessId) {
        let ready = self.events.borrow().get(&id).cloned();
        if let Some(events) = ready.as_ref().filter(|events| events.has_room()) {
            let _ = events.signal_sent(number, sender);
        } else if self.table.borrow().get(id).is_some_and(|process| !matches!(process.phase, Phase::Zombie(_))) {
            let mut early = self.early.borrow_mut();
            let (signals, from) = early.entry(id).or_default();
            let is_first = *signals == 0;
            *signals |= 1 << (number - 1);
            *from = sender;
            drop(early);
            if let Some(events) = ready.filter(|_| is_first) {
                // It has not read the last: what comes meanwhile is pending, once each.
                let server = self.clone();
                runtime::spawn(async move {
                    events.room().await;
                    server.deliver_early(id);
                });
            }
        }
    }

    /// The process may have a parent it does not know of. One that was not heard of yet is told
    /// when it is.
    fn tell_parent(&self, id: ProcessId) {
        let parent = self.table.borrow().adopter(id);
        if let (Some(parent), Some(events)) = (parent, self.events.borrow().get(&id)) {
            // As for signals; a proxy that lost an event asks.
            let _ = events.adopted(parent);
        }
    }

    fn deliver_early(self: &Rc<Self>, id: ProcessId) {
        let Some((signals, sender)) = self.early.borrow_mut().remove(&id) else { return };
        for number in (1..=SIGNAL_LAST).filter(|number| signals >> (number - 1) & 1 != 0) {
            self.notify(id, number, sender);
        }
    }

    /// Keeps a refused fork waiting.
    async fn refuse(&self, parent: ProcessId) {
        let before = {
            let mut refusals = self.refusals.borrow_mut();
            let count = refusals.entry(parent).or_default();
            *count += 1;
            *count - 1
        };
        runtime::sleep(REFUSED_PAUSE_FIRST_NS << before.min(REFUSED_DOUBLINGS_MAX)).await;
    }

    /// Ends a domain, whatever becomes of who wants it ended.
    fn kill(self: &Rc<Self>, domain: DomainId) {
        let server = self.clone();
        runtime::spawn(async move {
            if let Err(error) = queued(|| server.spawn.kill(domain, 0)).await {
                runtime::log!("domain {domain:#x} cannot be ended: {error:?}");
            }
        });
    }

    /// Throws a child away that was not started.
    fn cancel(self: &Rc<Self>, id: ProcessId) {
        let domain = self.table.borrow().get(id).map(|process| process.domain);
        self.table.borrow_mut().cancel(id);
        self.early.borrow_mut().remove(&id);
        domain.into_iter().for_each(|domain| self.kill(domain));
    }

    /// Ends a child whose parent ended before it was heard of, unless it was started all the same.
    async fn discard(self: Rc<Self>, domain: DomainId) {
        if self.table.borrow().by_domain(domain).is_none() {
            return;
        }
        self.discarded.borrow_mut().insert(domain);
        match queued(|| self.spawn.discard(domain)).await {
            // Its death follows, if it was not told yet.
            Ok(()) => return,
            Err(CallError::Server(SpawnError::Busy)) => {}
            Err(error) => runtime::log!("domain {domain:#x} cannot be ended: {error:?}"),
        }
        self.discarded.borrow_mut().remove(&domain);
    }

    /// Makes a child of `parent`.
    async fn prepare(self: &Rc<Self>, parent: ProcessId) -> Result<Forked, ProcessError> {
        let spare_pages = self.table.borrow().room(parent)?;
        let domain = self.table.borrow().get(parent).map(|process| process.domain);
        // Each child of the first process begins a program with turns of its own.
        let shares_turns = parent != FIRST;
        let made = queued(|| self.spawn.linux(None, domain, spare_pages, shares_turns)).await;
        let made = made.map_err(|_| ProcessError::TooMany)?;
        let prepared = self.table.borrow_mut().prepare(parent, made.domain, made.client);
        match prepared {
            Ok(process) => Ok(Forked { process, client: made.client, handles: made.parent_handles }),
            Err(error) => {
                self.kill(made.domain);
                Err(error)
            }
        }
    }

    fn deliver(self: &Rc<Self>, id: ProcessId, number: u8, sender: ProcessId) {
        if number != SIGKILL {
            return self.notify(id, number, sender);
        }
        // It has ended when its death is told: then its parent hears of it.
        let domain = self.table.borrow_mut().kill(id);
        domain.into_iter().for_each(|domain| self.kill(domain));
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

    async fn fork_prepare(&self, peer: &Peer) -> Result<Forked, ProcessError> {
        let parent = self.caller(peer)?;
        // What was begun is ended in order, also if the parent is killed meanwhile.
        let made = Rc::new((RefCell::new(None), Watch::default()));
        let (server, making) = (self.0.clone(), made.clone());
        runtime::spawn(async move {
            let forked = server.prepare(parent).await;
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

    async fn wait(
        &self,
        peer: &Peer,
        target: Target,
        interest: Interest,
        wait: bool,
    ) -> Result<Option<(ProcessId, ChildState)>, ProcessError> {
        let caller = self.caller(peer)?;
        let look = || match self.table.borrow_mut().wait(caller, target, interest) {
            Waited::Found(id, state) => Some(Ok(Some((id, state)))),
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
            self.tell(caller, parent);
        }
        Ok(stopped.is_some())
    }

    fn resumed(&self, peer: &Peer) {
        let Ok(caller) = self.caller(peer) else { return };
        let resumed = self.table.borrow_mut().resumed(caller);
        if let Some(parent) = resumed {
            self.tell(caller, parent);
        }
    }

    async fn standing(&self, peer: &Peer, foreground: ProcessId, signal: bool) -> Result<Standing, ProcessError> {
        let caller = self.caller(peer)?;
        let standing = self.table.borrow().may_use_terminal(caller, foreground);
        match standing {
            Ok(()) => Ok(Standing::Foreground),
            Err(true) => Ok(Standing::Orphaned),
            Err(false) if !signal => Ok(Standing::Background),
            Err(false) => {
                let group = self.table.borrow().signalled(caller, Target::OwnGroup)?;
                group.into_iter().for_each(|id| self.notify(id, SIGTTIN, 0));
                Ok(Standing::Background)
            }
        }
    }

    async fn signal(&self, peer: &Peer, target: Target, number: u8) -> Result<(), ProcessError> {
        // The console is no process: it signals for whoever typed, and Linux names such a sender 0.
        // Its name is the monitor's word, not its own.
        let caller = if peer.name() == "console" { 0 } else { self.caller(peer)? };
        if number > SIGNAL_LAST {
            return Err(ProcessError::Invalid);
        }
        let reached = self.table.borrow().signalled(caller, target)?;
        if number != 0 {
            reached.into_iter().for_each(|id| self.deliver(id, number, caller));
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

    async fn alarm(
        &self,
        peer: &Peer,
        at_ns: Option<u64>,
        interval_ns: u64,
        number: u8,
    ) -> Result<Option<u64>, ProcessError> {
        let caller = self.caller(peer)?;
        if number == 0 || number > SIGNAL_LAST {
            return Err(ProcessError::Invalid);
        }
        let old = self.alarms.borrow_mut().remove(&caller);
        let left_ns = old.map(|old| {
            runtime::abort(old.task);
            old.at_ns.saturating_sub(runtime::now_ns())
        });
        if let Some(at_ns) = at_ns {
            let task = runtime::spawn(ring(self.0.clone(), caller, at_ns, interval_ns, number));
            self.alarms.borrow_mut().insert(caller, Alarm { task, at_ns });
        }
        Ok(left_ns)
    }

    fn watch_children(&self, peer: &Peer, discard: bool, stops: bool) {
        if let Ok(caller) = self.caller(peer) {
            self.table.borrow_mut().watch_children(caller, discard, stops);
        }
    }

    fn describe(&self, peer: &Peer, name: String, command_line: String) {
        if let Ok(caller) = self.caller(peer) {
            self.table.borrow_mut().describe(caller, &name, &command_line);
        }
    }

    async fn pipe(&self, peer: &Peer) -> Result<(DescriptionId, DescriptionId), ProcessError> {
        self.pipes.create(peer.id()).ok_or(ProcessError::TooMany)
    }

    async fn list(&self, _peer: &Peer, from: ProcessId) -> Result<Option<ProcessLine>, ProcessError> {
        let found = {
            let table = self.table.borrow();
            let first = table.ids(from).next();
            first.and_then(|id| table.get(id).map(|process| (id, process.clone())))
        };
        let Some((id, process)) = found else { return Ok(None) };
        let zombie = matches!(process.phase, Phase::Zombie(_));
        let (pages, cpu_ns) = if zombie { (0, 0) } else { self.spawn.usage(process.domain).await.unwrap_or((0, 0)) };
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
            pages,
            cpu_ns,
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

/// A process's alarm. Intervals below a millisecond would only burn time.
async fn ring(server: Rc<Server>, process: ProcessId, mut at_ns: u64, interval_ns: u64, number: u8) {
    const INTERVAL_MIN_NS: u64 = 1_000_000;
    loop {
        runtime::sleep_until(at_ns).await;
        server.deliver(process, number, 0);
        if interval_ns == 0 {
            server.alarms.borrow_mut().remove(&process);
            return;
        }
        at_ns = at_ns.saturating_add(interval_ns.max(INTERVAL_MIN_NS)).max(runtime::now_ns());
        if let Some(alarm) = server.alarms.borrow_mut().get_mut(&process) {
            alarm.at_ns = at_ns;
        }
    }
}
