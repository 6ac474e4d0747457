//! Who runs, who is told of what, and how processes begin and end: what the `process` contract is
//! served from.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};

use abi::{DeathCause, Handle};
use channel::{CallError, Peer, queued};
use contracts::descriptions::DescriptionError;
use contracts::process::*;
use contracts::spawn::{DOMAINS_AT_ONCE, Death, DomainId, SpawnClient, SpawnError, SpawnEvent};
use process_core::notices::{Notice, Notices};
use process_core::shared_memory::SharedMemory;
use process_core::table::{FIRST, Phase, Table};
use process_core::timer::Timers;
use process_core::vfork::Vforks;
use runtime::{LogLimit, Watch};

use crate::descriptions;
use crate::first::first_domain;
use crate::futex::Futexes;

const SIGHUP: u8 = 1;
const SIGKILL: u8 = 9;
const SIGSEGV: u8 = 11;
const SIGCHLD: u8 = 17;
const SIGCONT: u8 = 18;

/// All of the server's state.
pub struct Server {
    pub spawn: SpawnClient,
    pub opened: Rc<descriptions::Service>,
    power: Option<Handle>,
    pub table: Rc<RefCell<Table>>,
    /// Where to send signals, by process.
    pub events: RefCell<BTreeMap<ProcessId, ProcessEvents>>,
    /// For processes that run but have not said hello yet, or have not read what was told before.
    pub early: RefCell<BTreeMap<ProcessId, Notices>>,
    /// What the console sent the first program before it is there; nothing is kept when it is, or
    /// when none comes.
    before_first: RefCell<Option<BTreeSet<u8>>>,
    /// Children that have their parent's memory.
    pub vforks: RefCell<Vforks>,
    /// On memory that processes share.
    pub futexes: Futexes,
    /// Of System V.
    pub shared_memory: RefCell<SharedMemory>,
    /// By process and number.
    pub alarms: RefCell<Timers<(ProcessId, u32)>>,
    /// Of the host, and of its domain.
    pub names: RefCell<[String; 2]>,
    /// Forks refused in a row, by the parent.
    pub refusals: RefCell<BTreeMap<ProcessId, u32>>,
    /// Domains of children that nobody started, while they are ended.
    discarded: RefCell<BTreeSet<DomainId>>,
    /// Says whose proxy ended out of order: a program may have thousands of children that do.
    deaths: LogLimit,
    /// Says who goes on with its parent's turns.
    shared_turns: LogLimit,
    /// Some process ended, stopped or was continued, or completed its vfork.
    pub changed: Watch,
    /// How the first program ended, and whether somebody asked for that.
    pub ended: Cell<Option<Ended>>,
    pub is_attended: Cell<bool>,
}

/// Refused forks back off exponentially: each waits for its answer twice as long as the one before,
/// until one is granted. So a process that asks again and again spends no time of others, and one
/// that meets the limit once hardly notices.
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
        server.before_first.take();
        return;
    }
    let made = match first_domain(&server.spawn).await {
        Ok(made) => made,
        Err(error) => {
            server.before_first.take();
            return runtime::log!("the first program has no domain: {error:?}");
        }
    };
    server.add_first(made.domain, made.client);
    if let Err(error) = server.spawn.start(made.domain).await {
        runtime::log!("the first program does not start: {error:?}");
    }
}

impl Server {
    /// Nothing runs yet. `power` ends the machine with the first program.
    pub fn new(spawn: SpawnClient, opened: Rc<descriptions::Service>, power: Option<Handle>) -> Server {
        Server {
            spawn,
            table: opened.processes.clone(),
            opened,
            power,
            events: RefCell::default(),
            early: RefCell::default(),
            before_first: RefCell::new(Some(BTreeSet::new())),
            vforks: RefCell::default(),
            futexes: Futexes::default(),
            shared_memory: RefCell::default(),
            alarms: RefCell::default(),
            names: RefCell::new(["pelago", "(none)"].map(String::from)),
            refusals: RefCell::default(),
            discarded: RefCell::default(),
            deaths: LogLimit::default(),
            shared_turns: LogLimit::default(),
            changed: Watch::default(),
            ended: Cell::default(),
            is_attended: Cell::default(),
        }
    }

    /// The first program is there; its proxy has not begun yet.
    pub fn add_first(self: &Rc<Self>, domain: DomainId, client: u64) {
        self.table.borrow_mut().add_first(domain, client);
        let signals = self.before_first.take().unwrap_or_default();
        signals.into_iter().for_each(|number| self.deliver(FIRST, number, SignalCause::Process(0)));
    }

    /// Keeps a signal for the first program, if that is still to come.
    pub fn keep_for_first(&self, number: u8) -> bool {
        let mut before = self.before_first.borrow_mut();
        before.as_mut().map(|signals| signals.insert(number)).is_some()
    }

    pub fn caller(&self, peer: &Peer) -> Result<ProcessId, ProcessError> {
        self.table.borrow().by_client(peer.id()).ok_or(ProcessError::NotFound)
    }

    /// Hears what spawn tells.
    pub async fn listen(self: Rc<Self>) {
        loop {
            match self.spawn.next_event().await {
                SpawnEvent::Died { death } => self.domain_died(&death),
                SpawnEvent::Closed => return runtime::log!("spawn is gone"),
                SpawnEvent::Lost => {
                    runtime::log!("events of spawn were lost: asking who is not there any more");
                    runtime::spawn(self.clone().look_for_dead());
                }
                SpawnEvent::PeerRestarted | SpawnEvent::Ended { .. } => {}
            }
        }
    }

    /// The kernel says a domain is gone, by its proxy's own word or otherwise: only now has its
    /// process ended.
    pub fn domain_died(self: &Rc<Self>, death: &Death) {
        let Some(id) = self.table.borrow().by_domain(death.domain) else { return };
        if self.discarded.borrow_mut().remove(&death.domain) {
            self.leaves_segments(id);
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
            self.deaths.log(format!("process {id}: its proxy ended ({death:?})"));
        }
        // What it held is closed before its parent hears of the end, as on Linux.
        let client = self.table.borrow().get(id).map_or(0, |process| process.client);
        self.opened.remove_clients(client..=client, |_| true);
        self.table.borrow_mut().used(id, death.cpu_ns);
        self.end(id, how);
        self.opened.act(|table| table.process_ended(client));
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
        self.vforks.borrow_mut().remove_all_of(id);
        self.vforks.borrow_mut().complete(id);
        self.alarms.borrow_mut().remove_all((id, 0)..=(id, u32::MAX));
        self.leaves_segments(id);
        if effect.machine_ends {
            self.opened.log.end();
            if let Some(name) = self.table.borrow().background() {
                runtime::log!("{name} went into the background, and the machine ends with the first program");
            }
            self.ended.set(Some(how));
        }
        if let Some((parent, number)) = effect.parent {
            let cause = SignalCause::Child { process: id, state: ChildState::Ended(how) };
            self.deliver(parent, number, cause);
        }
        for domain in effect.unborn {
            runtime::spawn(self.clone().discard(domain));
        }
        for child in effect.adopted {
            self.tell_parent(child);
        }
        for (child, number) in effect.bereaved {
            self.deliver(child, number, SignalCause::Process(id));
        }
        for process in effect.stranded {
            self.notify(process, Notice::Signal(SIGHUP, SignalCause::Process(0)));
            self.notify(process, Notice::Signal(SIGCONT, SignalCause::Process(0)));
        }
        self.changed.changed();
    }

    /// A process stopped or was continued, and this parent wants to hear of it.
    pub fn tell(self: &Rc<Self>, id: ProcessId, parent: Option<ProcessId>, state: ChildState) {
        if let Some(parent) = parent {
            self.signal_about(parent, id, state);
        }
        self.changed.changed();
    }

    pub fn signal_about(self: &Rc<Self>, parent: ProcessId, process: ProcessId, state: ChildState) {
        self.notify(parent, Notice::Signal(SIGCHLD, SignalCause::Child { process, state }));
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

    pub fn notify(self: &Rc<Self>, id: ProcessId, notice: Notice) {
        let ready = self.events.borrow().get(&id).cloned();
        let is_first = !self.early.borrow().contains_key(&id);
        if let Some(events) = ready.as_ref().filter(|events| is_first && events.has_room()) {
            let _ = match notice {
                Notice::Signal(number, cause) => events.signal_sent(number, cause),
                Notice::Expired(timer, times) => events.expired(timer, times),
            };
        } else if self.table.borrow().get(id).is_some_and(|process| !matches!(process.phase, Phase::Zombie(_))) {
            self.early.borrow_mut().entry(id).or_default().put(notice);
            if let Some(events) = ready.filter(|_| is_first) {
                // It has not read the last: what comes meanwhile waits.
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
    pub fn tell_parent(&self, id: ProcessId) {
        let parent = self.table.borrow().adopter(id);
        if let (Some(parent), Some(events)) = (parent, self.events.borrow().get(&id)) {
            // As for signals; a proxy that lost an event asks.
            let _ = events.adopted(parent);
        }
    }

    pub fn deliver_early(self: &Rc<Self>, id: ProcessId) {
        let Some(mut notices) = self.early.borrow_mut().remove(&id) else { return };
        while let Some(notice) = notices.take() {
            self.notify(id, notice);
        }
    }

    /// Lets timers expire, for ever.
    pub async fn keep_time(self: Rc<Self>) {
        loop {
            let next_ns = self.next_ns();
            let changed = self.opened.timers_changed.until(|| (self.next_ns() != next_ns).then_some(()));
            match next_ns {
                None => changed.await,
                Some(next_ns) => {
                    let _ = runtime::timeout(next_ns.saturating_sub(runtime::now_ns()), changed).await;
                }
            }
            let now_ns = runtime::now_ns();
            self.opened.act(|table| table.expire(now_ns));
            let expired = self.alarms.borrow_mut().expire(now_ns);
            for (process, timer) in expired {
                let times = self.alarms.borrow_mut().take((process, timer), now_ns);
                self.notify(process, Notice::Expired(timer, times));
            }
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let both = [self.opened.next_ns(), self.alarms.borrow().next_ns()];
        both.into_iter().flatten().min()
    }

    /// A target without handles. `NotFound` for a handle whose process was waited for, or that the
    /// caller does not hold.
    pub fn resolve(&self, peer: &Peer, target: Target) -> Result<Target, ProcessError> {
        let Target::Handle(id) = target else { return Ok(target) };
        let (process, client) =
            self.opened.act(|table| table.process_of(peer.id(), id)).map_err(|error| of_handle(&error))?;
        let is_it = self.table.borrow().get(process).is_some_and(|process| process.client == client);
        if is_it { Ok(Target::Process(process)) } else { Err(ProcessError::NotFound) }
    }

    /// Keeps a refused fork waiting.
    pub async fn refuse(&self, parent: ProcessId) {
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
    pub fn cancel(self: &Rc<Self>, id: ProcessId) {
        let domain = self.table.borrow().get(id).map(|process| process.domain);
        self.table.borrow_mut().cancel(id);
        self.vforks.borrow_mut().remove(id);
        self.leaves_segments(id);
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

    /// Has a program that begins a branch take turns of its own.
    pub async fn begin_turns(self: Rc<Self>, domain: DomainId) {
        match queued(|| self.spawn.begin_turns(domain)).await {
            // It may have ended already.
            Ok(()) | Err(CallError::Server(SpawnError::NotFound)) => {}
            Err(error) => {
                self.shared_turns.log(format!("domain {domain:#x} goes on with its parent's turns: {error:?}"));
            }
        }
    }

    /// Makes a child of `parent`.
    pub async fn prepare(self: &Rc<Self>, parent: ProcessId, options: ForkOptions) -> Result<Forked, ProcessError> {
        self.table.borrow().within(parent, options.user_limit)?;
        let (spare_pages, making) = Making::begin(&self.table, parent)?;
        let domain = self.table.borrow().get(parent).map(|process| process.domain);
        let made = queued(|| self.spawn.linux(None, domain, spare_pages)).await;
        let made = made.map_err(|_| ProcessError::TooMany)?;
        drop(making);
        let prepared = {
            let mut table = self.table.borrow_mut();
            // Others of the user may have been made meanwhile.
            table.within(parent, options.user_limit).and_then(|()| table.prepare(parent, made.domain, made.client))
        };
        match prepared {
            Ok(process) => {
                self.table.borrow_mut().set_end_signal(process, options.end_signal);
                self.shared_memory.borrow_mut().inherit(parent, process);
                if options.is_vfork {
                    self.vforks.borrow_mut().begin(parent, process);
                }
                Ok(Forked { process, client: made.client, handles: made.parent_handles })
            }
            Err(error) => {
                self.kill(made.domain);
                Err(error)
            }
        }
    }

    pub fn deliver(self: &Rc<Self>, id: ProcessId, number: u8, cause: SignalCause) {
        if number != SIGKILL {
            return self.notify(id, Notice::Signal(number, cause));
        }
        // It has ended when its death is told: then its parent hears of it.
        let domain = self.table.borrow_mut().kill(id);
        domain.into_iter().for_each(|domain| self.kill(domain));
    }
}

/// The place of a child that is being made, whatever becomes of who wants it.
struct Making {
    table: Rc<RefCell<Table>>,
    branch: ProcessId,
}

impl Making {
    fn begin(table: &Rc<RefCell<Table>>, parent: ProcessId) -> Result<(u64, Making), ProcessError> {
        let (spare_pages, branch) = table.borrow_mut().begin(parent)?;
        Ok((spare_pages, Making { table: table.clone(), branch }))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.table.borrow_mut().made(self.branch);
    }
}

/// What is wrong with a handle or timer that a client names.
pub fn of_handle(error: &DescriptionError) -> ProcessError {
    if *error == DescriptionError::BadId { ProcessError::NotFound } else { ProcessError::Invalid }
}
