//! A cluster under a seeded clock.
//!
//! Every delay, death and call is drawn from the seed and its own place (the channel and number of
//! the message, the number of the call), and events of equal time have a fixed order: one seed, one
//! run, and leaving out a call leaves the delays of the others as they are. Channels are
//! independent of each other, so what two nodes send to a third arrives in any order; each channel
//! keeps its own.

use crate::cluster::{Action, Cluster, Occurrence};
use crate::invariants::{self, Broken, Ghost};
use crate::workload;
use abi::Rights;
use capability::{Answer, Call, CapabilityId, NodeId, ObjectId, Protocol, Refusal, RequestId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

const MICROSECOND_NS: u64 = 1_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// Longest a message takes.
const DELAY_MAX_NS: u64 = 2 * MILLISECOND_NS;
/// A core that stopped is noticed by then, suspected or not.
const NOTICED_NS: u64 = 200 * MILLISECOND_NS;
/// Longest from a call to its answer: a death may go unnoticed for `NOTICED_NS`, an operation may
/// wait for others that wait for it, each of which takes a few rounds of messages.
const ANSWER_NS: u64 = 4 * NOTICED_NS + 1_000 * DELAY_MAX_NS;
/// More events than any sound run of this size has, per call asked for and node.
const EVENTS_PER_CALL: u64 = 400;
/// Actions kept for the report of a failure.
const TRACE: usize = 200;

/// How big and how rough.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything random comes from here.
    pub seed: u64,
    /// Cores.
    pub cores: u16,
    /// Calls in all.
    pub calls: u32,
    /// Deaths in all; each core is started again some time later.
    pub deaths: u32,
    /// Pages of each core.
    pub pages: u64,
    /// Slots of each core.
    pub slots: usize,
    /// States are checked every so many events.
    pub check_every: u64,
    /// Only these of the calls, counted from 0.
    pub only: Option<BTreeSet<u32>>,
}

impl Options {
    /// For a seed and a number of cores.
    pub fn new(seed: u64, cores: u16) -> Options {
        let calls = 60 * u32::from(cores).min(40);
        let check_every = if cores <= 8 { 1 } else { u64::from(cores) * 8 };
        Options { seed, cores, calls, deaths: seed as u32 % 4, pages: 64, slots: 24, check_every, only: None }
    }
}

impl Options {
    /// How to run it again.
    pub fn again(&self) -> String {
        let Options { seed, cores, calls, deaths, only, .. } = self;
        let only = only.iter().flatten().map(u32::to_string).collect::<Vec<_>>().join(",");
        let only = if only.is_empty() { only } else { format!(" --only {only}") };
        format!("again: ./pelago sim --seed {seed} --nodes {cores} --calls {calls} --deaths {deaths}{only}")
    }
}

/// What was asked and is not answered.
struct Pending {
    since_ns: u64,
    core: u16,
    call: Call,
    /// What it is about, looked up when it was asked.
    about: Option<(CapabilityId, ObjectId)>,
}

/// A run.
pub struct Simulation<P: Protocol> {
    /// The machine.
    pub cluster: Cluster<P>,
    seed: u64,
    now_ns: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Next)>>,
    order: u64,
    /// When the last of a stream arrives, and how many there were.
    last: HashMap<Stream, (u64, u64)>,
    pending: BTreeMap<(u16, RequestId), Pending>,
    /// The last call that made or widened a translation. Requests are numbered in the order they
    /// are made.
    touched: HashMap<(u16, CapabilityId), RequestId>,
    ghost: Ghost,
    hash: DefaultHasher,
    trace: VecDeque<String>,
    check_every: u64,
    requests: u64,
    /// Events so far.
    pub events: u64,
    /// Calls that went through, and that were refused.
    pub answers: [u64; 2],
    /// Longest from a call to its answer.
    pub slowest_ns: u64,
    /// Answers of the last phase, for who asked alone.
    pub last_answer: Option<Result<Answer, Refusal>>,
}

/// What has random properties of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Stream {
    Channel(NodeId, NodeId),
    ViewChange(u16),
    Call(u32),
    Stop(u32),
    Death(u16),
}

/// What is to happen at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Deliver(NodeId, NodeId),
    Tell(u16),
    Timer(u16),
    /// The core and the number of the call.
    Ask(u16, u32),
    Stop(u16),
    Announce(u16),
    Start(u16),
}

impl<P: Protocol> Simulation<P> {
    /// Before the first event; calls and deaths are laid out in time.
    pub fn new(options: &Options) -> Simulation<P> {
        let mut simulation = Simulation {
            cluster: Cluster::new(options.cores, options.pages, options.slots),
            seed: options.seed,
            now_ns: 0,
            queue: BinaryHeap::new(),
            order: 0,
            last: HashMap::new(),
            pending: BTreeMap::new(),
            touched: HashMap::new(),
            ghost: Ghost::default(),
            hash: DefaultHasher::new(),
            trace: VecDeque::new(),
            check_every: options.check_every,
            requests: 0,
            events: 0,
            answers: [0; 2],
            slowest_ns: 0,
            last_answer: None,
        };
        // About as long as a few messages take for each call of a core, so that calls of different
        // cores meet.
        let span = (u64::from(options.calls) * 60 * MICROSECOND_NS / u64::from(options.cores)).max(MILLISECOND_NS);
        let place = |stream| {
            let mut random = simulation.random(stream, 0);
            (random.random_range(0..span), random.random_range(0..options.cores))
        };
        let wanted = |number: &u32| options.only.as_ref().is_none_or(|only| only.contains(number));
        let calls: Vec<_> =
            (0..options.calls).filter(wanted).map(|number| (place(Stream::Call(number)), number)).collect();
        let deaths: Vec<_> = (0..options.deaths).map(|number| place(Stream::Stop(number))).collect();
        calls.into_iter().for_each(|((at, core), number)| simulation.plan(at, Next::Ask(core, number)));
        deaths.into_iter().for_each(|(at, core)| simulation.plan(at, Next::Stop(core)));
        simulation
    }

    /// What distinguishes this run from any other.
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// The last things that happened.
    pub fn trace(&self) -> impl Iterator<Item = &String> {
        self.trace.iter()
    }

    fn plan(&mut self, at_ns: u64, next: Next) {
        self.order += 1;
        self.queue.push(Reverse((at_ns, self.order, next)));
    }

    fn random(&self, stream: Stream, number: u64) -> ChaCha8Rng {
        let mut hash = DefaultHasher::new();
        (self.seed, stream, number).hash(&mut hash);
        ChaCha8Rng::seed_from_u64(hash.finish())
    }

    /// When the next of a stream arrives: some time from now, and not before the last.
    fn arrival(&mut self, stream: Stream) -> u64 {
        let (last, number) = self.last.get(&stream).copied().unwrap_or_default();
        let mut random = self.random(stream, number);
        let delay = match random.random_range(0..100) {
            0..90 => random.random_range(1..20) * MICROSECOND_NS,
            90..98 => random.random_range(20..200) * MICROSECOND_NS,
            _ => random.random_range(200 * MICROSECOND_NS..DELAY_MAX_NS),
        };
        let at = last.max(self.now_ns + delay);
        self.last.insert(stream, (at, number + 1));
        at
    }

    /// Runs until nothing is left to happen, then starts what is stopped and runs again.
    pub fn run(&mut self) -> Result<(), Broken> {
        let limit = EVENTS_PER_CALL * u64::from(self.cluster.cores()) * (self.queue.len() as u64 + 4);
        while let Some(Reverse((at_ns, _, next))) = self.queue.pop() {
            self.now_ns = at_ns;
            self.events += 1;
            if self.events > limit {
                return Err(format!("no end after {limit} events: something goes round in circles"));
            }
            if let Some(action) = self.choose(next) {
                self.act(&action)?;
                if self.events.is_multiple_of(self.check_every) {
                    invariants::always(&self.cluster)?;
                }
            }
        }
        self.check_rest()
    }

    fn check_rest(&self) -> Result<(), Broken> {
        if let Some(((core, request), pending)) = self.pending.first_key_value() {
            return Err(format!("core {core} never answered {request:?}: {:?}", pending.call));
        }
        if !self.cluster.is_quiet() {
            return Err("nothing is left to happen, yet some node is not done".into());
        }
        invariants::always(&self.cluster)?;
        invariants::quiet(&self.cluster)
    }

    /// Everything is given back: each core revokes what it ever handed out, one after another, and
    /// makes one object of all its memory.
    pub fn sweep(&mut self) -> Result<(), Broken> {
        for core in 0..self.cluster.cores() {
            self.must(core, Call::Revoke { slot: capability::Slot(0) })?;
        }
        invariants::whole(&self.cluster)?;
        for core in 0..self.cluster.cores() {
            let pages = self.cluster.pages();
            let all = Call::Retype { slot: capability::Slot(0), kind: abi::ObjectType::Segment, pages, count: 1 };
            self.must(core, all)?;
        }
        self.check_rest()
    }

    /// A call that nothing stands in the way of.
    fn must(&mut self, core: u16, call: Call) -> Result<(), Broken> {
        self.last_answer = None;
        self.requests += 1;
        self.act(&Action::Call(core, RequestId(self.requests), call.clone()))?;
        self.run()?;
        match &self.last_answer {
            Some(Ok(_)) => Ok(()),
            answer => Err(format!("core {core}: {call:?} with nothing in its way gave {answer:?}")),
        }
    }

    /// What is planned, as an action, if it can still happen.
    fn choose(&mut self, next: Next) -> Option<Action> {
        match next {
            Next::Deliver(from, to) => Some(Action::Deliver(from, to)),
            Next::Tell(core) => Some(Action::Tell(core)),
            Next::Timer(core) => {
                let due = self.cluster.node(core)?.wake_at_ns().is_some_and(|at| at <= self.now_ns);
                due.then_some(Action::Timer(core))
            }
            Next::Ask(core, number) => {
                let mut random = self.random(Stream::Call(number), 1);
                let call = workload::call(&mut random, &self.cluster, self.cluster.node(core)?);
                self.requests += 1;
                Some(Action::Call(core, RequestId(self.requests), call))
            }
            Next::Stop(core) => {
                self.cluster.node(core)?;
                // Most deaths are noticed soon, some only because somebody waits in vain.
                let mut random = self.random(Stream::Death(core), self.now_ns);
                let soon = random.random_bool(0.7);
                let noticed = if soon { random.random_range(0..2 * MILLISECOND_NS) } else { NOTICED_NS };
                self.plan(self.now_ns + noticed, Next::Announce(core));
                Some(Action::Stop(core))
            }
            Next::Announce(core) => {
                if self.cluster.is_unannounced(core) {
                    let later = self.random(Stream::Death(core), self.now_ns).random_range(0..5 * MILLISECOND_NS);
                    self.plan(self.now_ns + later, Next::Start(core));
                    return Some(Action::Announce(core));
                }
                None
            }
            Next::Start(core) => self.cluster.can_start(core).then_some(Action::Start(core)),
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), Broken> {
        (self.now_ns, action).hash(&mut self.hash);
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>12} ns  {action:?}", self.now_ns));
        if let Action::Call(core, request, call) = action {
            self.note(*core, *request, call);
        }
        if let Action::Stop(core) = action {
            self.pending.retain(|(at, _), _| at != core);
        }
        let occurred = self.cluster.act(action, self.now_ns);
        for occurrence in occurred {
            self.occur(occurrence)?;
        }
        let core = match action {
            Action::Call(core, ..) | Action::Tell(core) | Action::Timer(core) | Action::Start(core) => *core,
            Action::Deliver(_, to) => to.core,
            Action::Stop(_) | Action::Announce(_) => return Ok(()),
        };
        if let Some(at) = self.cluster.node(core).and_then(|node| node.wake_at_ns()) {
            self.plan(at.max(self.now_ns), Next::Timer(core));
        }
        self.ghost.look(&self.cluster, core)
    }

    fn note(&mut self, core: u16, request: RequestId, call: &Call) {
        let slot = match call {
            Call::Revoke { slot } | Call::Invalidate { slot, .. } | Call::Touch { slot, .. } => Some(*slot),
            _ => None,
        };
        let held = slot.and_then(|slot| self.cluster.node(core)?.table().get(slot));
        let about = held.map(|held| (held.id, held.object));
        let pending = Pending { since_ns: self.now_ns, core, call: call.clone(), about };
        self.pending.insert((core, request), pending);
    }

    fn occur(&mut self, occurrence: Occurrence) -> Result<(), Broken> {
        match occurrence {
            Occurrence::Sent(from, to) => {
                let at = self.arrival(Stream::Channel(from, to));
                self.plan(at, Next::Deliver(from, to));
            }
            Occurrence::ViewChange(core) => {
                let at = self.arrival(Stream::ViewChange(core));
                self.plan(at, Next::Tell(core));
            }
            Occurrence::Suspected(node) => self.plan(self.now_ns + MICROSECOND_NS, Next::Announce(node.core)),
            Occurrence::Replied(core, request, answer) => return self.replied(core, request, answer),
        }
        Ok(())
    }

    fn replied(&mut self, core: u16, request: RequestId, answer: Result<Answer, Refusal>) -> Result<(), Broken> {
        let Some(pending) = self.pending.remove(&(core, request)) else {
            return Err(format!("core {core} answered {request:?} twice"));
        };
        let took = self.now_ns - pending.since_ns;
        self.slowest_ns = self.slowest_ns.max(took);
        if took > ANSWER_NS {
            return Err(format!("core {} answered {:?} after {took} ns", pending.core, pending.call));
        }
        self.answers[usize::from(answer.is_err())] += 1;
        if answer == Err(Refusal::InUse) {
            return Err(format!("core {core}: {:?} leaked a refusal that is between nodes", pending.call));
        }
        match (&answer, &pending.call, pending.about) {
            (Ok(_), Call::Revoke { .. }, Some((capability, _))) => invariants::revoked(&self.cluster, capability)?,
            (Ok(_), Call::Invalidate { keep, .. }, Some((_, object))) => self.invalidated(request, object, *keep)?,
            (Ok(_), Call::Touch { .. }, Some((capability, _))) => _ = self.touched.insert((core, capability), request),
            _ => (),
        }
        self.last_answer = Some(answer);
        Ok(())
    }

    /// No translation that was made before it was asked for allows more than was to be kept.
    fn invalidated(&self, request: RequestId, object: ObjectId, keep: Rights) -> Result<(), Broken> {
        for node in self.cluster.nodes() {
            let wide = node.table().translations().filter(|(_, at)| at.object == object && !keep.contains(at.rights));
            for (through, at) in wide {
                if self.touched.get(&(node.id().core, through)).is_none_or(|touched| *touched < request) {
                    return Err(format!("{at:?} at {:?} outlived its invalidation", node.id()));
                }
            }
        }
        Ok(())
    }
}
