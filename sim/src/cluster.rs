//! A machine without time: nodes, what is on its way between them, and what they have not yet been
//! told.
//!
//! Invariants: a channel is first in, first out, and loses nothing while its receiver lives; a core
//! that stopped takes what was on its way to it along, and what it had sent may still arrive;
//! changes of who lives are numbered and reach every node in order; a core is started again only
//! after its death was announced.

use capability::{Answer, Refusal};
use capability::{Call, Capability, Effect, Envelope, Event, Extent, Message, Node, NodeId, Protocol, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Something that happens next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A local caller asks.
    Call(u16, RequestId, Call),
    /// The first message of a channel arrives.
    Deliver(NodeId, NodeId),
    /// A core hears of the next change of who lives.
    Tell(u16),
    /// A core's timer.
    Timer(u16),
    /// A core stops, from one step to the next.
    Stop(u16),
    /// The watcher of the cores announces that it stopped.
    Announce(u16),
    /// It is started again.
    Start(u16),
}

/// What an action led to, for the driver that chooses the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// A message is on its way.
    Sent(NodeId, NodeId),
    /// A call was answered.
    Replied(u16, RequestId, Result<Answer, Refusal>),
    /// A node waits too long for another.
    Suspected(NodeId),
    /// A core is to be told of a change of membership.
    ViewChange(u16),
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster<P: Protocol> {
    nodes: Vec<Option<Node<P>>>,
    lives: Vec<u32>,
    /// Last change of who lives.
    view: u64,
    /// Who lives, as announced.
    live: BTreeSet<NodeId>,
    channels: BTreeMap<(NodeId, NodeId), VecDeque<Envelope>>,
    news: Vec<VecDeque<Event>>,
    pages: u64,
    slots: usize,
}

impl<P: Protocol> Cluster<P> {
    /// `cores` that have just started, each with so many pages of memory and so many slots.
    pub fn new(cores: u16, pages: u64, slots: usize) -> Cluster<P> {
        let live: BTreeSet<NodeId> = (0..cores).map(|core| NodeId { core, life: 1 }).collect();
        let start = |id: &NodeId| Some(Node::new(*id, region(id.core, pages), 0, live.clone(), slots));
        Cluster {
            nodes: live.iter().map(start).collect(),
            lives: vec![1; cores.into()],
            view: 0,
            live: live.clone(),
            channels: BTreeMap::new(),
            news: vec![VecDeque::new(); cores.into()],
            pages,
            slots,
        }
    }

    /// How many cores there are, running or not.
    pub fn cores(&self) -> u16 {
        self.nodes.len() as u16
    }

    /// A running core's node.
    pub fn node(&self, core: u16) -> Option<&Node<P>> {
        self.nodes[usize::from(core)].as_ref()
    }

    /// All running cores' nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node<P>> {
        self.nodes.iter().flatten()
    }

    /// Whether this life of a core is announced as living.
    pub fn is_live(&self, node: NodeId) -> bool {
        self.live.contains(&node)
    }

    /// Whether a core stopped and nobody was told.
    pub fn is_unannounced(&self, core: u16) -> bool {
        self.node(core).is_none() && self.is_live(self.name(core))
    }

    /// Whether a core is stopped and everybody will hear of it.
    pub fn can_start(&self, core: u16) -> bool {
        self.node(core).is_none() && !self.is_live(self.name(core))
    }

    /// Pages of each core.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The core of a page.
    pub fn region_of(&self, page: u64) -> u64 {
        page / self.pages
    }

    /// Channels with something in them, to running nodes.
    pub fn channels(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.channels.keys().copied().filter(|(_, to)| self.node(to.core).is_some_and(|node| node.id() == *to))
    }

    /// Running cores that have not heard everything.
    pub fn uninformed(&self) -> impl Iterator<Item = u16> {
        (0..self.cores()).filter(|core| self.node(*core).is_some() && !self.news[usize::from(*core)].is_empty())
    }

    /// Capabilities on their way to a running node.
    pub fn in_flight(&self) -> impl Iterator<Item = &Capability> {
        let envelopes = self.channels().flat_map(|channel| &self.channels[&channel]);
        envelopes.filter_map(|envelope| match &envelope.message {
            Message::Transfer { capability, .. } => Some(capability),
            _ => None,
        })
    }

    /// Whether nothing is on its way and no node is busy.
    pub fn is_quiet(&self) -> bool {
        self.channels().next().is_none()
            && self.uninformed().next().is_none()
            && self.nodes().all(Node::is_quiet)
            && (0..self.cores()).all(|core| !self.is_unannounced(core))
    }

    fn name(&self, core: u16) -> NodeId {
        NodeId { core, life: self.lives[usize::from(core)] }
    }

    /// Does one thing. What can no longer happen, because a core stopped, does nothing.
    pub fn act(&mut self, action: &Action, now_ns: u64) -> Vec<Occurrence> {
        match action {
            Action::Call(core, request, call) => self.step(*core, Event::Call(*request, call.clone()), now_ns),
            Action::Deliver(from, to) => match self.take(*from, *to) {
                Some(envelope) => self.step(to.core, Event::Message(*from, envelope), now_ns),
                None => Vec::new(),
            },
            Action::Tell(core) => match self.news[usize::from(*core)].pop_front() {
                Some(event) => self.step(*core, event, now_ns),
                None => Vec::new(),
            },
            Action::Timer(core) => self.step(*core, Event::Timer, now_ns),
            Action::Stop(core) => {
                self.stop(*core);
                Vec::new()
            }
            Action::Announce(core) if self.is_unannounced(*core) => {
                let node = self.name(*core);
                self.live.remove(&node);
                self.change(|view| Event::Down(view, node), None)
            }
            Action::Start(core) if self.can_start(*core) => self.start(*core),
            Action::Announce(_) | Action::Start(_) => Vec::new(),
        }
    }

    fn take(&mut self, from: NodeId, to: NodeId) -> Option<Envelope> {
        let waiting = self.channels.get_mut(&(from, to))?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.channels.remove(&(from, to));
        }
        first
    }

    fn step(&mut self, core: u16, event: Event, now_ns: u64) -> Vec<Occurrence> {
        let Some(node) = self.nodes[usize::from(core)].as_mut() else { return Vec::new() };
        let from = node.id();
        let effects = node.step(event, now_ns);
        effects.into_iter().filter_map(|effect| self.perform(from, effect)).collect()
    }

    fn perform(&mut self, from: NodeId, effect: Effect) -> Option<Occurrence> {
        match effect {
            Effect::Send(to, envelope) => {
                // Nobody reads what comes in for a core that stopped.
                self.node(to.core).filter(|node| node.id() == to)?;
                self.channels.entry((from, to)).or_default().push_back(envelope);
                Some(Occurrence::Sent(from, to))
            }
            Effect::Reply(request, answer) => Some(Occurrence::Replied(from.core, request, answer)),
            Effect::Suspect(node) => Some(Occurrence::Suspected(node)),
            // The node's table says what translations are left; there are no real ones here.
            Effect::Invalidate(..) => None,
        }
    }

    fn stop(&mut self, core: u16) {
        if let Some(node) = self.nodes[usize::from(core)].take() {
            self.channels.retain(|(_, to), _| *to != node.id());
            self.news[usize::from(core)].clear();
        }
    }

    fn start(&mut self, core: u16) -> Vec<Occurrence> {
        self.lives[usize::from(core)] += 1;
        let node = self.name(core);
        self.live.insert(node);
        let occurred = self.change(|view| Event::Up(view, node), Some(core));
        let memory = region(core, self.pages);
        self.nodes[usize::from(core)] = Some(Node::new(node, memory, self.view, self.live.clone(), self.slots));
        occurred
    }

    fn change(&mut self, event: impl Fn(u64) -> Event, but: Option<u16>) -> Vec<Occurrence> {
        self.view += 1;
        let told: Vec<u16> =
            (0..self.cores()).filter(|core| Some(*core) != but && self.node(*core).is_some()).collect();
        told.iter().for_each(|core| self.news[usize::from(*core)].push_back(event(self.view)));
        told.into_iter().map(Occurrence::ViewChange).collect()
    }
}

fn region(core: u16, pages: u64) -> Extent {
    Extent { first: u64::from(core) * pages, pages }
}
