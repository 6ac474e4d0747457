//! A small model checker: every order of events of small machines.
//!
//! A state is a cluster, the calls still to be made and what was answered. From each state every
//! possible action is tried; states seen before are not looked at again. In each state the
//! invariants hold; in each state from which nothing can happen, everything was answered and
//! nothing is under way.
//!
//! Time stands still, so nothing is suspected; that a core stopped is announced sooner or later.
//! Two states with the same 64-bit fingerprint count as one: with a million states the chance that
//! this hides one is below one in ten million.

use crate::invariants;
use crate::{Action, Broken, Cluster, Occurrence, without};
use abi::{ObjectType, Rights};
use capability::{Answer, Call, CapabilityId, Protocol, RETRY_NS, Refusal, RequestId, SUSPECT_NS, Slot, Sound, Step};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

const ALL: Rights = Rights::ALL;
const STATES_MAX: usize = 3_000_000;

type Answers = Vec<(u16, RequestId, Result<Answer, Refusal>)>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State<P: Protocol> {
    cluster: Cluster<P>,
    /// What each core's caller will still ask, one after another without waiting.
    scripts: Vec<VecDeque<Call>>,
    /// Cores that may still stop, and be started again.
    stops: Vec<u16>,
    starts: Vec<u16>,
    asked: Vec<(u16, RequestId, Option<CapabilityId>)>,
    answers: Answers,
}

struct Scenario {
    cores: u16,
    /// Done one after another before the rest.
    before: Vec<(u16, Call)>,
    scripts: Vec<(u16, Vec<Call>)>,
    stops: Vec<u16>,
    starts: Vec<u16>,
}

struct Found {
    states: usize,
    ends: usize,
    broken: Option<(String, Vec<Action>)>,
}

fn retype(slot: u32, kind: ObjectType, pages: u64, count: u32) -> Call {
    Call::Retype { slot: Slot(slot), kind, pages, count }
}

fn give(slot: u32, to: u16) -> Call {
    Call::Transfer { slot: Slot(slot), to, rights: ALL, moved: false }
}

fn hand_over(slot: u32, to: u16) -> Call {
    Call::Transfer { slot: Slot(slot), to, rights: ALL, moved: true }
}

impl<P: Protocol> State<P> {
    fn begin(scenario: &Scenario) -> State<P> {
        let mut state = State {
            cluster: Cluster::new(scenario.cores, 8, 6),
            scripts: vec![VecDeque::new(); scenario.cores.into()],
            stops: scenario.stops.clone(),
            starts: scenario.starts.clone(),
            asked: Vec::new(),
            answers: Vec::new(),
        };
        for (core, call) in &scenario.before {
            state.scripts[usize::from(*core)].push_back(call.clone());
            let mut actions = state.actions(false);
            while let Some(action) = actions.first() {
                state.act(action).expect("holds in order");
                actions = state.actions(false);
            }
            assert!(state.answers.iter().all(|(_, _, answer)| answer.is_ok()), "{core} {call:?}: {:?}", state.answers);
        }
        (state.asked, state.answers) = (Vec::new(), Vec::new());
        scenario
            .scripts
            .iter()
            .for_each(|(core, calls)| state.scripts[usize::from(*core)] = calls.iter().cloned().collect());
        state
    }

    fn actions(&self, deaths: bool) -> Vec<Action> {
        let cluster = &self.cluster;
        let cores = || (0..cluster.cores()).filter(|core| cluster.node(*core).is_some());
        let asked = self.asked.len() as u64;
        let calls = cores().filter_map(|core| {
            let call = self.scripts[usize::from(core)].front()?;
            Some(Action::Call(core, RequestId(asked + 1), call.clone()))
        });
        let announcements = (0..cluster.cores()).filter(|core| cluster.is_unannounced(*core)).map(Action::Announce);
        let alive = calls
            .chain(cluster.channels().map(|(from, to)| Action::Deliver(from, to)))
            .chain(cluster.uninformed().map(Action::Tell))
            .chain(announcements);
        let mut alive: Vec<Action> = alive.collect();
        // Early retries are tried in every order, later ones when there is nothing else: or trying
        // in vain would go on for ever.
        let retries =
            cores().filter(|core| self.retry_at(*core).is_some_and(|at| alive.is_empty() || at <= 2 * RETRY_NS));
        let retries: Vec<Action> = retries.map(Action::Timer).collect();
        alive.extend(retries);
        let stops = self.stops.iter().filter(|core| cluster.node(**core).is_some()).map(|core| Action::Stop(*core));
        let starts = self.starts.iter().filter(|core| cluster.can_start(**core)).map(|core| Action::Start(*core));
        alive.into_iter().chain(stops.chain(starts).filter(|_| deaths)).collect()
    }

    /// The core's timer, if it is for more than suspicion.
    fn retry_at(&self, core: u16) -> Option<u64> {
        self.cluster.node(core)?.wake_at_ns().filter(|at| *at < SUSPECT_NS)
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        let now = if let Action::Timer(core) = action { self.retry_at(*core).unwrap_or(0) } else { 0 };
        match action {
            Action::Call(core, request, call) => {
                self.scripts[usize::from(*core)].pop_front();
                let revoked = match call {
                    Call::Revoke { slot } => {
                        self.cluster.node(*core).and_then(|node| Some(node.table().get(*slot)?.id))
                    }
                    _ => None,
                };
                self.asked.push((*core, *request, revoked));
            }
            Action::Stop(core) => {
                self.stops.retain(|stop| stop != core);
                self.scripts[usize::from(*core)].clear();
                self.asked.iter_mut().filter(|(at, ..)| at == core).for_each(|(at, ..)| *at = u16::MAX);
            }
            Action::Start(core) => self.starts.retain(|start| start != core),
            _ => (),
        }
        for occurrence in self.cluster.act(action, now) {
            if let Occurrence::Replied(core, request, answer) = occurrence {
                let asked = self.asked.iter().find(|(_, asked, _)| *asked == request);
                if let (Ok(_), Some((_, _, Some(capability)))) = (&answer, asked) {
                    invariants::revoked(&self.cluster, *capability)?;
                }
                self.answers.push((core, request, answer));
            }
        }
        invariants::always(&self.cluster)
    }

    fn check_end(&self) -> Result<(), String> {
        for (core, request, _) in self.asked.iter().filter(|(core, ..)| *core != u16::MAX) {
            let answered = self.answers.iter().filter(|(at, answered, _)| at == core && answered == request).count();
            if answered != 1 {
                return Err(format!("{request:?} of core {core} was answered {answered} times"));
            }
        }
        if !self.cluster.is_quiet() {
            return Err("nothing can happen, yet some node is not done".into());
        }
        invariants::quiet(&self.cluster)
    }
}

fn fingerprint(of: &impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    of.hash(&mut hash);
    hash.finish()
}

/// Looks at every state; `at_end` at those from which nothing but deaths can happen.
fn explore<P: Protocol>(scenario: &Scenario, at_end: impl Fn(&Cluster<P>, &Answers) -> Result<(), String>) -> Found {
    let first = State::<P>::begin(scenario);
    let mut from: HashMap<u64, Option<(u64, Action)>> = HashMap::from([(fingerprint(&first), None)]);
    let mut queue = VecDeque::from([first]);
    let mut ends = 0;
    let path = |from: &HashMap<u64, Option<(u64, Action)>>, mut at: u64| {
        let mut path = Vec::new();
        while let Some(Some((before, action))) = from.get(&at) {
            path.push(action.clone());
            at = *before;
        }
        path.reverse();
        path
    };
    while let Some(state) = queue.pop_front() {
        let here = fingerprint(&state);
        if state.actions(false).is_empty() {
            ends += 1;
            if let Err(broken) = state.check_end().and_then(|()| at_end(&state.cluster, &state.answers)) {
                return Found { states: from.len(), ends, broken: Some((broken, path(&from, here))) };
            }
        }
        for action in state.actions(true) {
            let mut next = state.clone();
            let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| next.act(&action)));
            let held = held.unwrap_or_else(|_| Err("a node found its own invariant broken".into()));
            if let Err(broken) = held {
                let mut path = path(&from, here);
                path.push(action);
                return Found { states: from.len(), ends, broken: Some((broken, path)) };
            }
            from.entry(fingerprint(&next)).or_insert_with(|| {
                queue.push_back(next);
                Some((here, action))
            });
            assert!(from.len() <= STATES_MAX, "more than {STATES_MAX} states: make the scenario smaller");
        }
    }
    Found { states: from.len(), ends, broken: None }
}

fn check(name: &str, scenario: &Scenario, at_end: impl Fn(&Cluster<Sound>, &Answers) -> Result<(), String>) {
    let found = explore::<Sound>(scenario, at_end);
    if let Some((broken, path)) = found.broken {
        path.iter().for_each(|action| eprintln!("  {action:?}"));
        panic!("{name}: {broken}");
    }
    println!("{name}: {} states, {} ends", found.states, found.ends);
    assert!(found.states > 50 && found.ends > 0, "{name}: hardly anything was tried");
}

fn anything(_: &Cluster<Sound>, _: &Answers) -> Result<(), String> {
    Ok(())
}

/// Both cores hold the Ram and want it for something else.
fn conflicting_retypes(cores: u16) -> Scenario {
    let scripts =
        vec![(0, vec![retype(0, ObjectType::Segment, 8, 1)]), (1, vec![retype(1, ObjectType::AddressRange, 4, 2)])];
    Scenario { cores, before: vec![(0, give(0, 1))], scripts, stops: vec![], starts: vec![] }
}

#[test]
fn of_conflicting_retypes_exactly_one_wins() {
    for cores in [2, 3] {
        check("conflicting retypes", &conflicting_retypes(cores), |_, answers| {
            let won = answers.iter().filter(|(_, _, answer)| answer.is_ok()).count();
            let retryable = |answer: &Result<Answer, Refusal>| {
                matches!(answer, Ok(_) | Err(Refusal::Busy | Refusal::HasDescendants))
            };
            let clear = answers.iter().all(|(_, _, answer)| retryable(answer));
            if won == 1 && clear { Ok(()) } else { Err(format!("{answers:?}")) }
        });
    }
}

#[test]
fn a_revoke_meets_a_capability_that_is_being_passed_on() {
    let scripts = vec![(0, vec![Call::Revoke { slot: Slot(0) }]), (1, vec![give(1, 2)])];
    let scenario = Scenario { cores: 3, before: vec![(0, give(0, 1))], scripts, stops: vec![], starts: vec![] };
    check("revoke against transfer", &scenario, anything);
}

#[test]
fn a_revoke_meets_a_retype_of_what_it_takes() {
    let before = vec![(0, retype(0, ObjectType::Ram, 4, 2)), (0, hand_over(1, 1))];
    let scripts = vec![
        (0, vec![Call::Revoke { slot: Slot(0) }, retype(0, ObjectType::Segment, 8, 1)]),
        (1, vec![retype(1, ObjectType::Segment, 2, 2), Call::Delete { slot: Slot(2) }]),
    ];
    let scenario = Scenario { cores: 2, before, scripts, stops: vec![], starts: vec![] };
    check("revoke against retype", &scenario, anything);
}

#[test]
fn the_last_capability_of_an_object_goes_while_it_is_passed_around() {
    let before = vec![(0, retype(0, ObjectType::Segment, 8, 1)), (0, hand_over(1, 1))];
    let scripts = vec![
        (0, vec![retype(0, ObjectType::Ram, 8, 1)]),
        (1, vec![hand_over(1, 2)]),
        (2, vec![Call::Delete { slot: Slot(1) }]),
    ];
    let scenario = Scenario { cores: 3, before, scripts, stops: vec![], starts: vec![] };
    check("last capability", &scenario, anything);
}

#[test]
fn copies_are_deleted_everywhere_at_once() {
    let before = vec![(0, retype(0, ObjectType::Segment, 8, 1)), (0, give(1, 1))];
    let scripts = vec![
        (0, vec![Call::Delete { slot: Slot(1) }]),
        (1, vec![Call::Delete { slot: Slot(1) }, retype(0, ObjectType::Ram, 8, 1)]),
    ];
    let scenario = Scenario { cores: 2, before, scripts, stops: vec![], starts: vec![] };
    check("copies deleted", &scenario, anything);
}

/// Copies of core 0's segment at 1 and 2; core 0 revokes, and may die at any time.
fn revoke_and_death() -> Scenario {
    let before = vec![
        (1, retype(0, ObjectType::Segment, 8, 1)),
        (1, give(1, 0)),
        // Core 0 passes on what it got.
        (0, give(1, 2)),
        (0, give(1, 1)),
    ];
    Scenario {
        cores: 3,
        before,
        scripts: vec![(0, vec![Call::Revoke { slot: Slot(1) }])],
        stops: vec![0],
        starts: vec![],
    }
}

/// Carried out by both survivors or by none.
fn all_or_none<P: Protocol>(cluster: &Cluster<P>, _: &Answers) -> Result<(), String> {
    let derived = |core: u16| {
        let made = CapabilityId::root(1);
        let held = cluster.node(core).map(|node| node.table().slots().filter(|(_, held)| held.derives_from(made)));
        held.map_or(0, Iterator::count)
    };
    match (derived(1), derived(2)) {
        (1, 0) | (2, 1) => Ok(()),
        (one, two) => Err(format!("core 1 is left with {one} and core 2 with {two}")),
    }
}

#[test]
fn a_revoke_whose_coordinator_dies_is_carried_out_everywhere_or_nowhere() {
    check("death of a revoker", &revoke_and_death(), all_or_none);
}

#[test]
fn a_voter_may_die_and_come_back_during_a_retype() {
    let scenario = Scenario { stops: vec![1], starts: vec![1], ..conflicting_retypes(2) };
    check("death of a voter", &scenario, anything);
}

/// A Ram goes from core to core and is used by each; the core in the middle may die at any time.
fn handed_on() -> Scenario {
    let before = vec![(0, retype(0, ObjectType::Ram, 8, 1))];
    let scripts = vec![
        (0, vec![hand_over(1, 1), retype(1, ObjectType::Segment, 8, 1)]),
        (1, vec![hand_over(1, 2)]),
        (2, vec![retype(1, ObjectType::Domain, 8, 1)]),
    ];
    Scenario { cores: 3, before, scripts, stops: vec![1], starts: vec![] }
}

#[test]
fn a_capability_handed_on_by_a_core_that_dies_exists_once() {
    check("handed on by the dead", &handed_on(), anything);
}

#[test]
fn a_revoke_meets_a_transfer_and_its_coordinator_dies_and_comes_back() {
    let scripts = vec![(1, vec![Call::Revoke { slot: Slot(1) }]), (2, vec![give(1, 0)])];
    // Core 0's memory is used by core 1, which passes it on to core 2.
    let before = vec![(0, retype(0, ObjectType::Segment, 8, 1)), (0, give(1, 1)), (1, give(1, 2))];
    let scenario = Scenario { cores: 3, before, scripts, stops: vec![1], starts: vec![1] };
    check("revoke, transfer and death", &scenario, anything);
}

#[test]
fn memory_of_a_core_that_comes_back_is_not_handed_out_while_in_use() {
    let before =
        vec![(0, retype(0, ObjectType::Ram, 8, 1)), (0, hand_over(1, 1)), (1, retype(1, ObjectType::Segment, 8, 1))];
    let scripts = vec![
        (0, vec![retype(0, ObjectType::Domain, 8, 1)]),
        (1, vec![Call::Touch { slot: Slot(2), rights: Rights::READ }, Call::Delete { slot: Slot(2) }]),
    ];
    let scenario = Scenario { cores: 2, before, scripts, stops: vec![0], starts: vec![0] };
    check("memory of a core that comes back", &scenario, anything);
}

/// Two revokes of each other's ancestors and descendants, with a restart.
#[test]
fn nested_revokes_meet_and_a_core_comes_back() {
    let before = vec![(0, retype(0, ObjectType::Ram, 8, 1)), (0, give(1, 1))];
    let scripts = vec![(0, vec![Call::Revoke { slot: Slot(0) }]), (1, vec![Call::Revoke { slot: Slot(1) }])];
    let scenario = Scenario { cores: 2, before, scripts, stops: vec![0], starts: vec![0] };
    check("nested revokes", &scenario, anything);
}

#[test]
fn the_checker_finds_what_is_left_out() {
    let found = without(Step::EndMoved, || explore::<Broken>(&handed_on(), |_, _| Ok(())));
    assert!(found.broken.is_some(), "a capability that exists twice went unnoticed");
    let found = without(Step::Prepare, || explore::<Broken>(&conflicting_retypes(2), |_, _| Ok(())));
    assert!(found.broken.is_some(), "retypes without votes went unnoticed");
    let found = without(Step::Resolve, || explore::<Broken>(&revoke_and_death(), all_or_none));
    assert!(found.broken.is_some(), "a half-done revoke went unnoticed");
}
