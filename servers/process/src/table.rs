//! The process table: who exists, whose child, which group and session, and how it ended.
//!
//! Invariants: ids are never 0 and not reused while any process, group or session bears them; every
//! process but the first has a living or first parent (orphans go to process 1); a zombie has no
//! domain that could still act; only an ended process leaves. Stopping is done by the process
//! itself (its proxy); the table knows who is stopped, and who must not be.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use contracts::process::{
    BRANCH_MAX, Capabilities, ChildNews, ChildState, Ended, IdChange, Identity, Ids, Interest, ProcessError, ProcessId,
    Target,
};

use crate::identity;

/// Processes at once, zombies included.
pub const MAX_PROCESSES: usize = 1000;
/// Pages that must stay free on the core for each process a branch has already, before it gets one
/// more: about what a small process takes. So a branch leaves to others at least as much memory as
/// it took, on machines of any size.
pub const SPARE_PAGES_EACH: u64 = 128;
/// The first program.
pub const FIRST: ProcessId = 1;
/// Ids wrap here, as on Linux.
const LAST_ID: ProcessId = 32_767;
const NAME_BYTES: usize = 15;
const COMMAND_LINE_BYTES: usize = 128;

/// The last signal.
pub const SIGNAL_LAST: u8 = 64;
const SIGCHLD: u8 = 17;
/// Stops whatever else holds.
const SIGSTOP: u8 = 19;

/// Where a process is in its life.
///
/// | from | by what | to |
/// |---|---|---|
/// | `Prepared` | its parent cancels it | gone |
/// | `Prepared` | it is heard of | `Running` |
/// | `Prepared`, `Running` | its domain ends | `Zombie` |
/// | `Zombie` | its parent waits for it, or ignores SIGCHLD | gone |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Made by fork_prepare, and not heard of yet: its parent may still cancel it.
    Prepared,
    /// Runs.
    Running,
    /// Ended, not waited for.
    Zombie(Ended),
}

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its parent's id; 0 for the first.
    pub parent: ProcessId,
    /// Group.
    pub group: ProcessId,
    /// Session.
    pub session: ProcessId,
    /// Its domain.
    pub domain: u64,
    /// As servers know it.
    pub client: u64,
    /// The branch it is of, by the id of who began it: the first program and each that descends
    /// from it without exec are of one; with exec one of these begins a branch.
    pub branch: ProcessId,
    /// The parent that it was born to has ended.
    pub is_adopted: bool,
    /// Life.
    pub phase: Phase,
    /// Is being ended: it makes no more children.
    pub killed: bool,
    /// Stopped.
    pub stopped: bool,
    /// A stop or continuation its parent has not been told.
    pub news: Option<ChildState>,
    /// Children vanish when they end.
    pub discards_children: bool,
    /// Wants SIGCHLD for stops of children too.
    pub hears_stops: bool,
    /// Processor time it used, known once it has ended.
    pub cpu_ns: u64,
    /// That of the children it waited for, and of theirs.
    pub children_cpu_ns: u64,
    /// What its parent gets when it ends; 0 for nothing.
    pub end_signal: u8,
    /// What it gets when its parent ends; 0 for nothing.
    pub parent_death: u8,
    /// Base name.
    pub name: String,
    /// Arguments.
    pub command_line: String,
    /// Whose it is.
    pub identity: Identity,
}

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// This is new of a child; one that ended and was taken is gone from the table now.
    Found(ChildNews),
    /// Fitting children live.
    None,
    /// No child fits.
    NoChild,
}

/// What the end of a process means to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndEffect {
    /// Who gets which signal for that: mostly the parent SIGCHLD.
    pub parent: Option<(ProcessId, u8)>,
    /// Living children, whose parent is the first process now.
    pub adopted: Vec<ProcessId>,
    /// Children that asked for a signal at their parent's end.
    pub bereaved: Vec<(ProcessId, u8)>,
    /// Processes of groups that have stopped members and nobody left to continue them: they get
    /// SIGHUP and SIGCONT (POSIX).
    pub stranded: Vec<ProcessId>,
    /// Children it had made and not started, as far as is known: their domains.
    pub unborn: Vec<u64>,
    /// The first program ended: so does the machine.
    pub machine_ends: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct Table {
    processes: BTreeMap<ProcessId, Process>,
    /// The living, by what servers know them as.
    clients: BTreeMap<u64, ProcessId>,
    /// The living, by domain.
    domains: BTreeMap<u64, ProcessId>,
    /// Children that are being made, by branch.
    making: BTreeMap<ProcessId, usize>,
    last_id: ProcessId,
}

/// The first `limit` bytes of a text, cut at a character.
fn cut(text: &str, limit: usize) -> String {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    String::from(&text[..end])
}

impl Table {
    /// The process with this id.
    pub fn get(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    /// The living process in a domain.
    pub fn by_domain(&self, domain: u64) -> Option<ProcessId> {
        self.domains.get(&domain).copied()
    }

    /// Domains of the living, ascending.
    pub fn living_domains(&self) -> Vec<u64> {
        self.domains.keys().copied().collect()
    }

    /// The living process that servers know as `client`.
    pub fn by_client(&self, client: u64) -> Option<ProcessId> {
        self.clients.get(&client).copied()
    }

    fn insert(&mut self, id: ProcessId, process: Process) {
        self.clients.insert(process.client, id);
        self.domains.insert(process.domain, id);
        self.processes.insert(id, process);
    }

    /// Ids from `from` on, ascending.
    pub fn ids(&self, from: ProcessId) -> impl Iterator<Item = ProcessId> {
        self.processes.range(from..).map(|(id, _)| *id)
    }

    fn fresh_id(&mut self) -> ProcessId {
        loop {
            self.last_id = if self.last_id >= LAST_ID { 2 } else { self.last_id + 1 };
            let id = self.last_id;
            let borne = self.processes.iter().any(|(other, process)| {
                *other == id || process.group == id || process.session == id || process.branch == id
            });
            if !borne {
                return id;
            }
        }
    }

    /// The first program; leads its own group and session. Its id is [`FIRST`] in an empty table.
    pub fn add_first(&mut self, domain: u64, client: u64) -> ProcessId {
        let id = self.fresh_id();
        let process = Process {
            parent: 0,
            branch: id,
            is_adopted: false,
            group: id,
            session: id,
            domain,
            client,
            phase: Phase::Running,
            killed: false,
            stopped: false,
            news: None,
            discards_children: false,
            hears_stops: true,
            cpu_ns: 0,
            children_cpu_ns: 0,
            end_signal: SIGCHLD,
            parent_death: 0,
            name: String::new(),
            command_line: String::new(),
            identity: Identity::default(),
        };
        self.insert(id, process);
        id
    }

    /// May `parent` make one more? Asked before a domain is paid for; gives the pages that have to
    /// stay free. `TooMany`, `NotFound` for one that has ended or is being ended.
    pub fn room(&self, parent: ProcessId) -> Result<u64, ProcessError> {
        let lives = |process: &&Process| !process.killed && !matches!(process.phase, Phase::Zombie(_));
        let living = self.processes.get(&parent).filter(lives);
        let branch = living.ok_or(ProcessError::NotFound)?.branch;
        let making = self.making.get(&branch).copied().unwrap_or_default();
        let in_branch = self.processes.values().filter(|process| process.branch == branch).count() + making;
        // The first program answers for the branches that come from its own: each has a place.
        let (begun, forks) = if branch == FIRST { (self.begun(), in_branch - 1) } else { (0, in_branch) };
        let making: usize = self.making.values().sum();
        if self.processes.len() + making >= MAX_PROCESSES || in_branch + begun >= BRANCH_MAX {
            return Err(ProcessError::TooMany);
        }
        Ok(forks as u64 * SPARE_PAGES_EACH)
    }

    /// Branches besides the first program's.
    fn begun(&self) -> usize {
        let all: BTreeSet<ProcessId> = self.processes.values().map(|process| process.branch).collect();
        all.iter().filter(|branch| **branch != FIRST).count()
    }

    /// A child of `parent` is going to be made, so its place is taken; gives the pages that have to
    /// stay free, and its branch for [`Table::made`]. Errors as of [`Table::room`].
    pub fn begin(&mut self, parent: ProcessId) -> Result<(u64, ProcessId), ProcessError> {
        let spare_pages = self.room(parent)?;
        let branch = self.processes.get(&parent).ok_or(ProcessError::NotFound)?.branch;
        *self.making.entry(branch).or_default() += 1;
        Ok((spare_pages, branch))
    }

    /// A child of that branch was made, or could not be.
    pub fn made(&mut self, branch: ProcessId) {
        if let Some(count) = self.making.get_mut(&branch) {
            *count -= 1;
            if *count == 0 {
                self.making.remove(&branch);
            }
        }
    }

    /// A child of `parent`, not yet running.
    pub fn prepare(&mut self, parent: ProcessId, domain: u64, client: u64) -> Result<ProcessId, ProcessError> {
        self.room(parent)?;
        let like = self.processes.get(&parent).ok_or(ProcessError::NotFound)?.clone();
        let id = self.fresh_id();
        let born = Process {
            parent,
            is_adopted: false,
            domain,
            client,
            phase: Phase::Prepared,
            stopped: false,
            news: None,
            cpu_ns: 0,
            children_cpu_ns: 0,
            end_signal: SIGCHLD,
            parent_death: 0,
            ..like
        };
        self.insert(id, born);
        Ok(id)
    }

    /// What the parent gets at the end of a child that was prepared.
    pub fn set_end_signal(&mut self, id: ProcessId, number: u8) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.end_signal = number;
        }
    }

    /// May the user of `parent` have one process more, if so many are the limit? Those that ended
    /// and were not waited for count, root may have all. `TooMany`.
    pub fn within(&self, parent: ProcessId, user_limit: u32) -> Result<(), ProcessError> {
        let Identity { users, .. } = &self.processes.get(&parent).ok_or(ProcessError::NotFound)?.identity;
        let of_user = self.processes.values().filter(|process| process.identity.users.real == users.real).count();
        let is_root = users.real == 0 || users.effective == 0;
        if is_root || of_user < user_limit as usize { Ok(()) } else { Err(ProcessError::TooMany) }
    }

    /// A child of `parent` that is still prepared; gives its domain.
    pub fn prepared(&self, parent: ProcessId, id: ProcessId) -> Result<u64, ProcessError> {
        match self.processes.get(&id) {
            Some(process) if process.parent == parent && process.phase == Phase::Prepared => Ok(process.domain),
            _ => Err(ProcessError::NotFound),
        }
    }

    /// A process is to end: its domain, unless it ends already.
    pub fn kill(&mut self, id: ProcessId) -> Option<u64> {
        let process = self.processes.get_mut(&id)?;
        let ends = matches!(process.phase, Phase::Zombie(_)) || core::mem::replace(&mut process.killed, true);
        (!ends).then_some(process.domain)
    }

    /// The child says that it runs.
    pub fn start(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id).filter(|process| process.phase == Phase::Prepared) {
            process.phase = Phase::Running;
        }
    }

    /// A prepared child is thrown away.
    pub fn cancel(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get(&id).filter(|process| process.phase == Phase::Prepared) {
            self.clients.remove(&process.client);
            self.domains.remove(&process.domain);
            self.processes.remove(&id);
        }
    }

    /// A process that is about to end used so much.
    pub fn used(&mut self, id: ProcessId, cpu_ns: u64) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.cpu_ns = cpu_ns;
        }
    }

    /// A process ended. `None` if it had ended before.
    pub fn end(&mut self, id: ProcessId, how: Ended) -> Option<EndEffect> {
        let anchored = self.anchored_stops();
        let process = self.processes.get_mut(&id)?;
        if matches!(process.phase, Phase::Zombie(_)) {
            return None;
        }
        (process.phase, process.stopped, process.news) = (Phase::Zombie(how), false, None);
        self.clients.remove(&process.client);
        self.domains.remove(&process.domain);
        let (parent, end_signal) = (process.parent, process.end_signal);
        let (mut heir_has_zombies, mut adopted, mut unborn) = (false, Vec::new(), Vec::new());
        let mut bereaved = Vec::new();
        for (child_id, child) in self.processes.iter_mut().filter(|(_, child)| child.parent == id) {
            (child.parent, child.is_adopted, child.end_signal) = (FIRST, true, SIGCHLD);
            if child.parent_death != 0 && child.phase == Phase::Running {
                bereaved.push((*child_id, child.parent_death));
            }
            match child.phase {
                Phase::Zombie(_) => heir_has_zombies = true,
                Phase::Running => adopted.push(*child_id),
                Phase::Prepared => {
                    unborn.push(child.domain);
                    adopted.push(*child_id);
                }
            }
        }
        let discards =
            |table: &Table, parent| table.processes.get(&parent).is_none_or(|parent| parent.discards_children);
        if heir_has_zombies && discards(self, FIRST) {
            self.processes.retain(|_, process| process.parent != FIRST || !matches!(process.phase, Phase::Zombie(_)));
        }
        if id != FIRST && end_signal == SIGCHLD && discards(self, parent) {
            self.processes.remove(&id);
        }
        let is_told = end_signal != 0 && self.processes.contains_key(&parent);
        let parent = is_told.then_some((parent, end_signal));
        let mut stranded = anchored;
        stranded.retain(|group| self.is_orphaned(*group));
        let stranded =
            self.living().filter(|(_, process)| stranded.contains(&process.group)).map(|(id, _)| id).collect();
        Some(EndEffect { parent, adopted, bereaved, stranded, unborn, machine_ends: id == FIRST })
    }

    /// Name of the first program if that went into the background: it ended well, and a process
    /// that it left behind still runs it.
    pub fn background(&self) -> Option<&str> {
        let first = self.get(FIRST).filter(|first| first.phase == Phase::Zombie(Ended::Exited(0)))?;
        let runs_it = |other: &Process| !matches!(other.phase, Phase::Zombie(_)) && other.name == first.name;
        self.processes.values().any(runs_it).then_some(first.name.as_str())
    }

    /// The parent of a process whose first one ended.
    pub fn adopter(&self, id: ProcessId) -> Option<ProcessId> {
        let process = self.processes.get(&id)?;
        (process.parent == FIRST && process.is_adopted).then_some(FIRST)
    }

    fn living(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.processes.iter().map(|(id, process)| (*id, process)).filter(|(_, process)| process.phase == Phase::Running)
    }

    /// Has the group no member whose parent is of another group of the same session, and so could
    /// continue it?
    fn is_orphaned(&self, group: ProcessId) -> bool {
        let can_be_continued = |process: &Process| {
            let parent = self.processes.get(&process.parent).filter(|parent| parent.phase == Phase::Running);
            parent.is_some_and(|parent| parent.session == process.session && parent.group != group)
        };
        !self.living().any(|(_, process)| process.group == group && can_be_continued(process))
    }

    /// Groups with stopped members that somebody could continue.
    fn anchored_stops(&self) -> Vec<ProcessId> {
        let mut groups: Vec<_> =
            self.living().filter(|(_, process)| process.stopped).map(|(_, process)| process.group).collect();
        groups.dedup();
        groups.retain(|group| !self.is_orphaned(*group));
        groups
    }

    /// A process is about to stop; `None` if it must not, else the parent that gets SIGCHLD, if it
    /// wants it.
    pub fn stop(&mut self, id: ProcessId, signal: u8) -> Option<Option<ProcessId>> {
        let group = self.processes.get(&id)?.group;
        if id == FIRST || signal != SIGSTOP && self.is_orphaned(group) {
            return None;
        }
        self.news(id, true, ChildState::Stopped(signal))
    }

    /// A stopped process goes on; gives the parent as [`stop`](Self::stop) does, `None` if it was
    /// not stopped.
    pub fn resumed(&mut self, id: ProcessId) -> Option<Option<ProcessId>> {
        self.processes.get(&id).filter(|process| process.stopped)?;
        self.news(id, false, ChildState::Continued)
    }

    fn news(&mut self, id: ProcessId, stopped: bool, news: ChildState) -> Option<Option<ProcessId>> {
        let process = self.processes.get_mut(&id)?;
        (process.stopped, process.news) = (stopped, Some(news));
        let parent = process.parent;
        Some(Some(parent).filter(|parent| self.processes.get(parent).is_some_and(|parent| parent.hears_stops)))
    }

    /// May the process use a terminal with that foreground group? `Err(orphaned)` if not. A
    /// terminal of another session is none of its own, and not watched.
    pub fn may_use_terminal(&self, id: ProcessId, foreground: ProcessId) -> Result<(), bool> {
        let Some(own) = self.processes.get(&id) else { return Ok(()) };
        let is_its_own = self.living().any(|(_, other)| other.group == foreground && other.session == own.session);
        if own.group == foreground || !is_its_own { Ok(()) } else { Err(self.is_orphaned(own.group)) }
    }

    fn fits(&self, caller: ProcessId, target: Target, id: ProcessId, process: &Process) -> bool {
        match target {
            Target::Any => true,
            Target::Process(wanted) => id == wanted,
            Target::Group(group) => process.group == group,
            // Handles lead to processes before they come here.
            Target::Handle(_) => false,
            Target::OwnGroup => self.processes.get(&caller).is_some_and(|own| own.group == process.group),
        }
    }

    /// An ended child of `parent` that fits, or what is new of a living one, which is news no
    /// longer if it is to be taken.
    pub fn wait(&mut self, parent: ProcessId, target: Target, interest: Interest, take: bool) -> Waited {
        let wanted = |news: &ChildState| match news {
            ChildState::Ended(_) => interest.ended,
            ChildState::Stopped(_) => interest.stopped,
            ChildState::Continued => interest.continued,
        };
        let is_of_kind = |child: &Process| match child.end_signal {
            SIGCHLD => interest.ordinary,
            _ => interest.clones,
        };
        let mut any = false;
        let mut found = None;
        for (id, child) in self
            .processes
            .iter()
            .filter(|(id, child)| child.parent == parent && is_of_kind(child) && self.fits(parent, target, **id, child))
        {
            let news = match child.phase {
                Phase::Zombie(how) => Some(ChildState::Ended(how)),
                // Whoever waits has no fork under way: the child was started.
                Phase::Prepared | Phase::Running => child.news,
            };
            let cpu_ns = child.cpu_ns.saturating_add(child.children_cpu_ns);
            found = found.or(news.filter(wanted).map(|state| ChildNews { process: *id, state, cpu_ns }));
            any = true;
        }
        match found {
            Some(news) => {
                if take {
                    self.take(parent, &news);
                }
                Waited::Found(news)
            }
            None if any => Waited::None,
            None => Waited::NoChild,
        }
    }

    fn take(&mut self, parent: ProcessId, news: &ChildNews) {
        match news.state {
            ChildState::Ended(_) => {
                self.processes.remove(&news.process);
                if let Some(parent) = self.processes.get_mut(&parent) {
                    parent.children_cpu_ns = parent.children_cpu_ns.saturating_add(news.cpu_ns);
                }
            }
            ChildState::Stopped(_) | ChildState::Continued => {
                self.processes.entry(news.process).and_modify(|child| child.news = None);
            }
        }
    }

    /// Living processes a signal of `caller` reaches; `Any` means all but the first and the caller
    /// (kill -1). `NotFound`.
    pub fn signalled(&self, caller: ProcessId, target: Target) -> Result<Vec<ProcessId>, ProcessError> {
        let exempt = |id: ProcessId| target == Target::Any && (id == FIRST || id == caller);
        let all: Vec<_> = self
            .processes
            .iter()
            .filter(|(id, process)| {
                !exempt(**id) && !matches!(process.phase, Phase::Zombie(_)) && self.fits(caller, target, **id, process)
            })
            .map(|(id, _)| *id)
            .collect();
        let zombie = matches!(target, Target::Process(id) if self.processes.contains_key(&id));
        if all.is_empty() && !zombie { Err(ProcessError::NotFound) } else { Ok(all) }
    }

    /// setpgid. `NotFound`, `Denied` for a session leader or a group of another session.
    pub fn set_group(&mut self, caller: ProcessId, id: ProcessId, group: ProcessId) -> Result<(), ProcessError> {
        let id = if id == 0 { caller } else { id };
        let group = if group == 0 { id } else { group };
        let process = self
            .processes
            .get(&id)
            .filter(|process| id == caller || process.parent == caller)
            .ok_or(ProcessError::NotFound)?;
        let session = process.session;
        let own = self.processes.get(&caller).ok_or(ProcessError::NotFound)?;
        let known =
            group == id || self.processes.values().any(|other| other.group == group && other.session == session);
        if process.session == id || session != own.session || !known {
            return Err(ProcessError::Denied);
        }
        if let Some(process) = self.processes.get_mut(&id) {
            process.group = group;
        }
        Ok(())
    }

    /// setsid. `Denied` for a group leader.
    pub fn new_session(&mut self, caller: ProcessId) -> Result<ProcessId, ProcessError> {
        if self.processes.values().any(|process| process.group == caller) {
            return Err(ProcessError::Denied);
        }
        let process = self.processes.get_mut(&caller).ok_or(ProcessError::NotFound)?;
        (process.group, process.session) = (caller, caller);
        Ok(caller)
    }

    /// Group and session; id 0 = the caller.
    pub fn groups(&self, caller: ProcessId, id: ProcessId) -> Result<(ProcessId, ProcessId), ProcessError> {
        let process = self.processes.get(&if id == 0 { caller } else { id }).ok_or(ProcessError::NotFound)?;
        Ok((process.group, process.session))
    }

    /// Changes the ids of a living process. As for [`identity::set_ids`].
    pub fn set_ids(
        &mut self,
        id: ProcessId,
        of_user: bool,
        change: IdChange,
    ) -> Result<(Ids, Capabilities), ProcessError> {
        let process = self.processes.get_mut(&id).ok_or(ProcessError::NotFound)?;
        let acted = identity::acting(id, &process.identity);
        let ids = identity::set_ids(&mut process.identity, of_user, change)?;
        if acted != identity::acting(id, &process.identity) {
            process.parent_death = 0;
        }
        Ok((ids, process.identity.capabilities))
    }

    /// Changes what a process may. As for [`identity::set_capabilities`].
    pub fn set_capabilities(&mut self, id: ProcessId, wanted: Capabilities) -> Result<(), ProcessError> {
        let process = self.processes.get_mut(&id).ok_or(ProcessError::NotFound)?;
        identity::set_capabilities(&mut process.identity, wanted)
    }

    /// Sets which signal a process gets when its parent ends, if one is named, and gives what holds
    /// now. `Invalid`.
    pub fn parent_death(&mut self, id: ProcessId, number: Option<u8>) -> Result<u8, ProcessError> {
        let process = self.processes.get_mut(&id).ok_or(ProcessError::NotFound)?;
        if number.is_some_and(|number| number > SIGNAL_LAST) {
            return Err(ProcessError::Invalid);
        }
        process.parent_death = number.unwrap_or(process.parent_death);
        Ok(process.parent_death)
    }

    /// Names its groups. As for [`identity::set_groups`].
    pub fn set_groups(&mut self, id: ProcessId, groups: Vec<u32>) -> Result<(), ProcessError> {
        let process = self.processes.get_mut(&id).ok_or(ProcessError::NotFound)?;
        identity::set_groups(&mut process.identity, groups)
    }

    /// Name and arguments after exec. Gives its domain if it was of the first program's branch and
    /// begins one of its own.
    pub fn describe(&mut self, id: ProcessId, name: &str, command_line: &str) -> Option<u64> {
        let process = self.processes.get_mut(&id)?;
        process.name = cut(name, NAME_BYTES);
        process.command_line = cut(command_line, COMMAND_LINE_BYTES);
        identity::run_program(&mut process.identity);
        process.end_signal = SIGCHLD;
        let begins = id != FIRST && process.branch == FIRST;
        if begins {
            process.branch = id;
        }
        begins.then_some(process.domain)
    }

    /// The program ignores SIGCHLD or no longer does, and wants it for stops or not; zombies of one
    /// that ignores it vanish.
    pub fn watch_children(&mut self, id: ProcessId, discard: bool, stops: bool) {
        if let Some(process) = self.processes.get_mut(&id) {
            (process.discards_children, process.hears_stops) = (discard, stops);
        }
        if discard {
            self.processes.retain(|_, process| {
                process.parent != id || process.end_signal != SIGCHLD || !matches!(process.phase, Phase::Zombie(_))
            });
        }
    }
}

#[cfg(test)]
mod tests;
