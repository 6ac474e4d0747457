//! What one node does alone, and what each call is refused for. Protocols between nodes:
//! `sim/src/tests`.

use crate::lock::{Lock, Locks, Vote};
use crate::*;
use abi::{ObjectType, Rights};
use alloc::vec;
use alloc::vec::Vec;

const ME: NodeId = NodeId { core: 0, life: 1 };
const OTHER: NodeId = NodeId { core: 1, life: 1 };
const NEW: NodeId = NodeId { core: 2, life: 1 };
const ROOT: Slot = Slot(0);

struct Bench {
    node: Node,
    requests: u64,
}

impl Bench {
    fn new() -> Bench {
        let memory = Extent { first: 0, pages: 16 };
        Bench { node: Node::new(ME, memory, 0, [ME, OTHER].into(), 8), requests: 0 }
    }

    fn effects(&mut self, call: Call) -> Vec<Effect> {
        self.requests += 1;
        self.node.step(Event::Call(RequestId(self.requests), call), 0)
    }

    /// The answer of a call that needs nobody else.
    fn call(&mut self, call: Call) -> Result<Vec<Slot>, Refusal> {
        let mut effects = self.effects(call);
        match effects.pop() {
            Some(Effect::Reply(RequestId(request), answer)) if request == self.requests => {
                answer.map(|answer| match answer {
                    Answer::Slots(slots) => slots,
                    Answer::Done => Vec::new(),
                })
            }
            other => panic!("not answered at once: {other:?}"),
        }
    }

    fn retype(&mut self, slot: Slot, kind: ObjectType, pages: u64, count: u32) -> Result<Vec<Slot>, Refusal> {
        self.call(Call::Retype { slot, kind, pages, count })
    }

    fn copy(&mut self, slot: Slot, rights: Rights) -> Result<Slot, Refusal> {
        self.call(Call::Copy { slot, rights }).map(|slots| slots[0])
    }

    fn held(&self) -> usize {
        self.node.table().slots().count()
    }
}

#[test]
fn ram_is_cut_up_once_and_comes_back_with_its_last_piece() {
    let mut bench = Bench::new();
    let pieces = bench.retype(ROOT, ObjectType::Ram, 8, 2).expect("free");
    assert_eq!(bench.retype(ROOT, ObjectType::Ram, 8, 2), Err(Refusal::HasDescendants));
    let segment = bench.retype(pieces[0], ObjectType::Segment, 3, 1).expect("free");
    let second = bench.copy(segment[0], Rights::READ).expect("has the right");
    for slot in [pieces[0], pieces[1], segment[0]] {
        bench.call(Call::Delete { slot }).expect("can be deleted");
        assert_eq!(bench.retype(ROOT, ObjectType::Segment, 16, 1), Err(Refusal::HasDescendants));
    }
    bench.call(Call::Delete { slot: second }).expect("can be deleted");
    assert_eq!(bench.node.table().records().count(), 1);
    bench.retype(ROOT, ObjectType::Segment, 16, 1).expect("the last piece is gone");
}

#[test]
fn a_revoke_takes_what_was_derived_and_nothing_else() {
    let mut bench = Bench::new();
    let pieces = bench.retype(ROOT, ObjectType::Ram, 8, 2).expect("free");
    let copy = bench.copy(pieces[0], Rights::ALL).expect("has the rights");
    bench.retype(copy, ObjectType::Segment, 8, 1).expect("free");
    bench.call(Call::Revoke { slot: copy }).expect("alone");
    assert_eq!(bench.held(), 4, "the segment went, the copy stayed");
    bench.retype(copy, ObjectType::Segment, 8, 1).expect("free again");
    bench.call(Call::Revoke { slot: pieces[0] }).expect("alone");
    assert_eq!(bench.held(), 3, "copy and segment went");
    bench.call(Call::Revoke { slot: ROOT }).expect("alone");
    assert_eq!(bench.held(), 1);
}

#[test]
fn each_call_says_what_is_wrong_with_it() {
    let mut bench = Bench::new();
    let wrong = [
        ((Slot(5), ObjectType::Ram, 1, 1), Refusal::BadSlot),
        ((ROOT, ObjectType::Pcore, 1, 1), Refusal::BadArgument),
        ((ROOT, ObjectType::Ram, 0, 1), Refusal::BadArgument),
        ((ROOT, ObjectType::Ram, 1, 0), Refusal::BadArgument),
        ((ROOT, ObjectType::Ram, 9, 2), Refusal::BadArgument),
        ((ROOT, ObjectType::Ram, u64::MAX, 2), Refusal::BadArgument),
        ((ROOT, ObjectType::Ram, 1, 9), Refusal::NoSlot),
    ];
    for ((slot, kind, pages, count), refusal) in wrong {
        assert_eq!(bench.retype(slot, kind, pages, count), Err(refusal));
    }
    assert_eq!(bench.call(Call::Delete { slot: ROOT }), Err(Refusal::BadArgument));
    assert_eq!(bench.copy(ROOT, Rights(1 << 20)), Err(Refusal::NoRights));
    let readable = bench.copy(ROOT, Rights::READ).expect("has the right");
    assert_eq!(bench.retype(readable, ObjectType::Ram, 1, 1), Err(Refusal::NoRights));
    assert_eq!(bench.copy(readable, Rights::WRITE), Err(Refusal::NoRights));
    let rights = Rights::READ;
    let transfer = |slot, to, moved| Call::Transfer { slot, to, rights, moved };
    assert_eq!(bench.call(transfer(readable, 1, false)), Err(Refusal::NoRights));
    assert_eq!(bench.call(transfer(ROOT, 0, false)), Err(Refusal::BadArgument));
    assert_eq!(bench.call(transfer(ROOT, 1, true)), Err(Refusal::BadArgument));
    assert_eq!(bench.call(transfer(ROOT, 7, false)), Err(Refusal::Stopped));
    assert_eq!(bench.call(Call::Touch { slot: ROOT, rights }), Err(Refusal::WrongType));
    assert_eq!(bench.call(Call::Invalidate { slot: ROOT, keep: rights }), Err(Refusal::WrongType));
    assert_eq!(bench.held(), 2, "nothing was changed");
}

#[test]
fn lineages_have_a_limit() {
    let mut bench = Bench::new();
    let mut last = ROOT;
    for _ in 0..LINEAGE_MAX {
        let next = bench.copy(last, Rights::ALL).expect("below the limit");
        if last != ROOT {
            bench.call(Call::Delete { slot: last }).expect("can be deleted");
        }
        last = next;
    }
    assert_eq!(bench.copy(last, Rights::ALL), Err(Refusal::TooDeep));
    assert_eq!(bench.retype(last, ObjectType::Segment, 1, 1), Err(Refusal::TooDeep));
    bench.call(Call::Revoke { slot: ROOT }).expect("alone");
    assert_eq!(bench.held(), 1, "it still descends from the root");
}

#[test]
fn translations_go_with_their_capability() {
    let mut bench = Bench::new();
    let segment = bench.retype(ROOT, ObjectType::Segment, 4, 1).expect("free")[0];
    let object = bench.node.table().get(segment).expect("was made").object;
    let both = Rights::READ.union(Rights::WRITE);
    bench.call(Call::Touch { slot: segment, rights: Rights::READ }).expect("has the right");
    bench.call(Call::Touch { slot: segment, rights: both }).expect("has the rights");
    for rights in [Rights::WRITE, Rights(0)] {
        assert_eq!(bench.call(Call::Touch { slot: segment, rights }), Err(Refusal::BadArgument));
    }
    let narrowed = bench.effects(Call::Invalidate { slot: segment, keep: Rights::READ });
    let answer = Effect::Reply(RequestId(bench.requests), Ok(Answer::Done));
    assert_eq!(narrowed, [Effect::Invalidate(object, Rights::READ), answer], "nobody else is asked");
    let revoked = bench.effects(Call::Revoke { slot: ROOT });
    assert_eq!(revoked[0], Effect::Invalidate(object, Rights(0)), "before the answer");
    assert_eq!(bench.node.table().translations().count(), 0);
}

#[test]
fn who_is_alone_asks_nobody_and_who_is_not_asks_all() {
    let mut bench = Bench::new();
    let send = Call::Transfer { slot: ROOT, to: 1, rights: Rights::ALL, moved: false };
    let sent = bench.effects(send);
    let [Effect::Send(OTHER, Envelope { message: Message::Transfer { number, .. }, .. })] = sent[..] else {
        panic!("{sent:?}")
    };
    let taken = Envelope { view: 0, message: Message::Transferred(number, Ok(())) };
    bench.node.step(Event::Message(OTHER, taken), 0);
    let asked = bench.effects(Call::Retype { slot: ROOT, kind: ObjectType::Ram, pages: 1, count: 1 });
    let [Effect::Send(OTHER, Envelope { message: Message::Prepare { operation, .. }, .. })] = asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(bench.call(Call::Revoke { slot: ROOT }), Err(Refusal::Busy), "while it is being decided");
    assert_eq!(bench.node.step(Event::Timer, SUSPECT_NS), vec![Effect::Suspect(OTHER)]);
    let no = Envelope { view: 0, message: Message::Vote(operation, Err(Refusal::HasDescendants)) };
    let ended = bench.node.step(Event::Message(OTHER, no), SUSPECT_NS);
    assert!(ended.contains(&Effect::Reply(RequestId(2), Err(Refusal::HasDescendants))), "{ended:?}");
    assert!(bench.node.is_quiet());
}

#[test]
fn strangers_and_late_answers_change_nothing() {
    let mut bench = Bench::new();
    let before = bench.node.clone();
    let operation = OperationId { coordinator: ME, number: 7 };
    let strange = NodeId { core: 1, life: 2 };
    let all = [
        Message::Vote(operation, Ok(false)),
        Message::Decide(operation, true),
        Message::Done(operation),
        Message::Transferred(9, Ok(())),
        Message::Invalidated(9),
        Message::Resolve { view: 9, dead: [OTHER].into(), committed: [operation].into() },
    ];
    for message in all {
        for from in [OTHER, strange] {
            bench.node.step(Event::Message(from, Envelope { view: 0, message: message.clone() }), 0);
        }
    }
    assert_eq!(bench.node, before);
}

impl Bench {
    /// Gives the other node a copy of what is in a slot, which it takes.
    fn share(&mut self, slot: Slot) {
        let sent = self.effects(Call::Transfer { slot, to: OTHER.core, rights: Rights::ALL, moved: false });
        let [Effect::Send(OTHER, Envelope { message: Message::Transfer { number, .. }, .. })] = sent[..] else {
            panic!("{sent:?}")
        };
        self.hear(Message::Transferred(number, Ok(())));
    }

    /// A message of the other node's.
    fn hear(&mut self, message: Message) -> Vec<Effect> {
        self.hear_of(OTHER, message)
    }

    fn hear_of(&mut self, from: NodeId, message: Message) -> Vec<Effect> {
        self.node.step(Event::Message(from, Envelope { view: self.node.view, message }), 0)
    }

    /// A call that asks the other node for its vote: its stamp.
    fn asks(&mut self, call: Call) -> (OperationId, Stamp) {
        let asked = self.effects(call);
        let [Effect::Send(OTHER, Envelope { message: Message::Prepare { operation, stamp, .. }, .. })] = asked[..]
        else {
            panic!("{asked:?}")
        };
        (operation, stamp)
    }
}

#[test]
fn who_is_alone_again_is_known_by_the_votes() {
    for remains in [true, false] {
        let mut bench = Bench::new();
        bench.share(ROOT);
        let (operation, first) = bench.asks(Call::Retype { slot: ROOT, kind: ObjectType::Ram, pages: 1, count: 1 });
        let decided = bench.hear(Message::Vote(operation, Ok(remains)));
        assert!(decided.contains(&Effect::Reply(RequestId(2), Ok(Answer::Slots(vec![Slot(1)])))), "{decided:?}");
        bench.hear(Message::Done(operation));
        assert_eq!(bench.node.table().get(ROOT).map(|held| held.remote), Some(remains));
        if remains {
            assert!(bench.asks(Call::Revoke { slot: ROOT }).1 > first, "a later one is younger");
        } else {
            assert_eq!(bench.call(Call::Revoke { slot: ROOT }), Ok(Vec::new()));
        }
    }
}

#[test]
fn a_node_that_starts_is_asked_for_its_vote_too() {
    let mut bench = Bench::new();
    bench.share(ROOT);
    let (operation, _) = bench.asks(Call::Revoke { slot: ROOT });
    let asked = bench.node.step(Event::Up(1, NEW), 0);
    let is_prepare = |message: &Message| matches!(message, Message::Prepare { operation: of, .. } if *of == operation);
    assert!(matches!(&asked[..], [Effect::Send(NEW, Envelope { message, .. })] if is_prepare(message)), "{asked:?}");
    assert_eq!(bench.hear(Message::Vote(operation, Ok(false))), [], "its vote is waited for");
    let decided = bench.hear_of(NEW, Message::Vote(operation, Ok(false)));
    let decide = |node| Effect::Send(node, Envelope { view: 1, message: Message::Decide(operation, true) });
    assert_eq!(decided, [decide(OTHER), decide(NEW)]);
}

#[test]
fn an_operation_goes_on_without_a_node_that_stopped() {
    let mut bench = Bench::new();
    bench.share(ROOT);
    let (operation, _) = bench.asks(Call::Revoke { slot: ROOT });
    bench.node.step(Event::Up(1, NEW), 0);
    assert_eq!(bench.hear(Message::Vote(operation, Ok(false))), []);
    let decide = Effect::Send(OTHER, Envelope { view: 2, message: Message::Decide(operation, true) });
    assert!(bench.node.step(Event::Down(2, NEW), 0).contains(&decide));
    assert_eq!(bench.hear(Message::Done(operation)), [Effect::Reply(RequestId(2), Ok(Answer::Done))]);
}

#[test]
fn who_waits_for_itself_suspects_nobody_for_it() {
    let mut bench = Bench::new();
    let copy = bench.copy(ROOT, Rights::ALL).expect("has the rights");
    bench.effects(Call::Transfer { slot: copy, to: OTHER.core, rights: Rights::ALL, moved: false });
    // Its own vote waits until that has landed.
    assert_eq!(bench.effects(Call::Retype { slot: ROOT, kind: ObjectType::Ram, pages: 1, count: 1 }), []);
    assert_eq!(bench.node.step(Event::Timer, SUSPECT_NS), [Effect::Suspect(OTHER)]);
}

#[test]
fn an_operation_waits_for_younger_ones_only_and_the_oldest_is_next() {
    let mut locks = Locks::default();
    let id = |clock| OperationId { coordinator: OTHER, number: clock };
    let mut take = |clock, first, pages| {
        let capability = CapabilityId::root(0);
        let (stamp, extent) = (Stamp { clock, coordinator: OTHER }, Extent { first, pages });
        let claim = Claim::Revoke { depth: 0, capability };
        locks.take(id(clock), Lock { stamp, extent, claim, vote: Vote::Waiting })
    };
    assert_eq!([take(50, 0, 8), take(20, 12, 4)], [Some(Vote::Draining); 2], "they are apart");
    assert_eq!(take(70, 4, 2), None, "an older one has it");
    assert_eq!([take(30, 4, 4), take(10, 0, 2)], [Some(Vote::Waiting); 2]);
    assert_eq!(take(40, 6, 4), None, "an older one awaits it");
    assert_eq!(take(25, 5, 4), Some(Vote::Waiting));
    let covered = [(0, 8), (1, 2), (12, 1), (4, 5), (8, 1)].map(|(first, pages)| locks.covers(Extent { first, pages }));
    assert_eq!(covered, [true, true, true, false, false], "by what is held, whole");
    assert_eq!(locks.advance(), [id(20), id(50)]);
    locks.set_vote(id(20), Vote::Cast);
    locks.remove(id(50));
    assert_eq!(locks.advance(), [id(10), id(25)], "the other one still waits, for the older of these");
    locks.remove(id(25));
    assert_eq!(locks.advance(), [id(10), id(30)]);
}

/// The other node asks for a vote about all memory.
fn asked_by_other(bench: &mut Bench) -> (OperationId, Vec<Effect>) {
    asked_by(bench, OTHER, 9, 9)
}

/// A node asks for a vote about all memory, by an operation of that number.
fn asked_by(bench: &mut Bench, coordinator: NodeId, number: u64, settled: u64) -> (OperationId, Vec<Effect>) {
    let operation = OperationId { coordinator, number };
    let memory = Extent { first: 0, pages: 16 };
    let claim = Claim::Revoke { depth: 0, capability: CapabilityId { node: coordinator, number: 8 } };
    let stamp = Stamp { clock: number, coordinator };
    let message = Message::Prepare { operation, stamp, settled, extent: memory, claim };
    (operation, bench.hear_of(coordinator, message))
}

#[test]
fn what_was_voted_about_stays_as_it_is_until_it_is_decided() {
    let mut bench = Bench::new();
    let pieces = bench.retype(ROOT, ObjectType::Ram, 8, 2).expect("free");
    bench.share(ROOT);
    let (operation, voted) = asked_by_other(&mut bench);
    let vote = Envelope { view: 0, message: Message::Vote(operation, Ok(true)) };
    assert_eq!(voted, [Effect::Send(OTHER, vote)]);
    assert_eq!(bench.retype(pieces[0], ObjectType::Segment, 8, 1), Err(Refusal::Busy));
    assert_eq!(bench.call(Call::Revoke { slot: pieces[0] }), Err(Refusal::Busy));
    assert_eq!(bench.copy(pieces[0], Rights::READ), Err(Refusal::Busy));
    assert_eq!(bench.hear(Message::Decide(operation, false)), []);
    bench.retype(pieces[0], ObjectType::Segment, 8, 1).expect("free again");
}

#[test]
fn what_a_dead_node_asked_before_it_had_a_vote_holds_nothing_up() {
    let mut bench = Bench::new();
    bench.node.step(Event::Up(1, NEW), 0);
    let copy = bench.copy(ROOT, Rights::ALL).expect("has the rights");
    bench.effects(Call::Transfer { slot: copy, to: NEW.core, rights: Rights::ALL, moved: false });
    assert_eq!(asked_by_other(&mut bench).1, [], "the vote waits until that has landed");
    assert_eq!(bench.copy(ROOT, Rights::READ), Err(Refusal::Busy));
    // The third has not said yet what it knows of the dead one.
    bench.node.step(Event::Down(2, OTHER), 0);
    bench.copy(ROOT, Rights::READ).expect("is free");
}

#[test]
fn what_was_carried_out_is_remembered_as_long_as_somebody_may_ask() {
    let mut bench = Bench::new();
    bench.node.step(Event::Up(1, NEW), 0);
    let mut carry_out = |coordinator, number, settled| {
        let (operation, _) = asked_by(&mut bench, coordinator, number, settled);
        bench.hear_of(coordinator, Message::Decide(operation, true));
        bench.node.committed.iter().map(|done| (done.coordinator, done.number)).collect::<Vec<_>>()
    };
    assert_eq!(carry_out(OTHER, 4, 4), [(OTHER, 4)]);
    assert_eq!(carry_out(NEW, 5, 5), [(OTHER, 4), (NEW, 5)]);
    assert_eq!(carry_out(OTHER, 6, 4), [(OTHER, 4), (OTHER, 6), (NEW, 5)]);
    assert_eq!(carry_out(OTHER, 7, 6), [(OTHER, 6), (OTHER, 7), (NEW, 5)], "the first is done everywhere");
    bench.node.step(Event::Down(2, NEW), 0);
    bench.hear(Message::Flush { view: 2, unresolved: [NEW].into(), committed: [].into() });
    assert_eq!(bench.node.committed.len(), 3, "another flush may come");
    bench.node.step(Event::Down(3, OTHER), 0);
    assert!(
        bench.node.committed.iter().all(|done| done.coordinator == OTHER),
        "nobody has one of the first one's open"
    );
}

#[test]
fn the_oldest_operation_that_is_open_is_told() {
    let mut bench = Bench::new();
    let pieces = bench.retype(ROOT, ObjectType::Ram, 8, 2).expect("free");
    pieces.iter().for_each(|slot| bench.share(*slot));
    let mut told = pieces.iter().map(|slot| match &bench.effects(Call::Revoke { slot: *slot })[..] {
        [Effect::Send(OTHER, Envelope { message: Message::Prepare { operation, settled, .. }, .. })] => {
            (operation.number, *settled)
        }
        other => panic!("{other:?}"),
    });
    let (first, second) = (told.next().unwrap(), told.next().unwrap());
    assert!(first.0 < second.0 && first.1 == first.0 && second.1 == first.0, "{first:?} {second:?}");
}

#[test]
fn a_node_is_waited_for_so_long_from_when_it_was_asked() {
    let mut bench = Bench::new();
    assert_eq!(bench.node.wake_at_ns(), None);
    bench.effects(Call::Transfer { slot: ROOT, to: OTHER.core, rights: Rights::ALL, moved: false });
    assert_eq!(bench.node.wake_at_ns(), Some(SUSPECT_NS));
    assert_eq!(bench.node.step(Event::Timer, SUSPECT_NS - 1), []);
    assert_eq!(bench.node.step(Event::Timer, SUSPECT_NS), [Effect::Suspect(OTHER)]);
    assert_eq!(bench.node.wake_at_ns(), Some(2 * SUSPECT_NS));
}

#[test]
fn a_receiver_has_the_rights_that_were_given_and_is_told_whether_others_may_have_some() {
    let mut bench = Bench::new();
    let pieces = bench.retype(ROOT, ObjectType::Ram, 4, 3).expect("free");
    bench.copy(pieces[2], Rights::READ).expect("has the right");
    for (slot, moved, remote) in [(pieces[0], true, false), (pieces[1], false, true), (pieces[2], true, true)] {
        let held = bench.node.table().get(slot).expect("was made").id;
        let sent = bench.effects(Call::Transfer { slot, to: OTHER.core, rights: Rights::READ, moved });
        let [Effect::Send(OTHER, Envelope { message: Message::Transfer { capability, .. }, .. })] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!((capability.rights, capability.remote), (Rights::READ, remote), "{slot:?}");
        assert_eq!((capability.id == held, capability.derives_from(held)), (moved, !moved), "{slot:?}");
        assert_eq!(bench.node.is_moving(slot), moved);
    }
}

#[test]
fn what_is_on_its_way_to_a_dead_node_or_of_one_is_answered() {
    let mut bench = Bench::new();
    bench.node.step(Event::Up(1, NEW), 0);
    let own = bench.retype(ROOT, ObjectType::Ram, 4, 3).expect("free");
    let mut theirs = bench.node.table().get(own[0]).expect("was made").clone();
    (theirs.id, theirs.object) = (CapabilityId { node: OTHER, number: 1 }, ObjectId { home: OTHER, number: 1 });
    bench.hear(Message::Transfer { number: 1, capability: theirs });
    let sent = [(own[0], OTHER, false), (own[1], OTHER, true), (own[2], NEW, true), (Slot(4), NEW, false)];
    let first = bench.requests + 1;
    for (slot, NodeId { core: to, .. }, moved) in sent {
        assert_eq!(bench.effects(Call::Transfer { slot, to, rights: Rights::ALL, moved }).len(), 1, "{slot:?}");
    }
    let ended = bench.node.step(Event::Down(2, OTHER), 0);
    let answers: Vec<_> = ended.into_iter().filter(|effect| matches!(effect, Effect::Reply(..))).collect();
    let answer = |number, why| Effect::Reply(RequestId(first + number), Err(why));
    assert_eq!(answers, [answer(0, Refusal::Stopped), answer(1, Refusal::Stopped), answer(3, Refusal::Gone)]);
    // What was moved to the dead one went with it; what is moved to another is under way.
    let kept: Vec<Slot> = bench.node.table().slots().map(|(slot, _)| slot).collect();
    assert_eq!((kept, bench.node.is_moving(own[2])), (vec![ROOT, own[0], own[2]], true));
}

#[test]
fn a_node_with_anything_under_way_is_not_quiet() {
    let shares_a_segment = |bench: &mut Bench| {
        let segment = bench.retype(ROOT, ObjectType::Segment, 4, 1).expect("free")[0];
        bench.share(segment);
        assert!(bench.node.is_quiet());
        segment
    };
    let all: [&dyn Fn(&mut Bench); 5] = [
        &|bench| {
            bench.effects(Call::Transfer { slot: ROOT, to: OTHER.core, rights: Rights::ALL, moved: false });
        },
        &|bench| _ = asked_by_other(bench),
        &|bench| {
            let message = Message::Invalidated(1);
            bench.node.step(Event::Message(OTHER, Envelope { view: 1, message }), 0);
        },
        &|bench| {
            let slot = shares_a_segment(bench);
            bench.effects(Call::Invalidate { slot, keep: Rights::READ });
        },
        &|bench| {
            bench.node.step(Event::Up(1, NEW), 0);
            assert!(bench.node.is_quiet());
            bench.node.step(Event::Down(2, OTHER), 0);
        },
    ];
    for (number, begin) in all.iter().enumerate() {
        let mut bench = Bench::new();
        assert!(bench.node.is_quiet());
        begin(&mut bench);
        assert!(!bench.node.is_quiet(), "{number}");
    }
}

#[test]
fn an_object_is_there_as_long_as_its_home_has_a_capability() {
    let mut bench = Bench::new();
    let segment = bench.retype(ROOT, ObjectType::Segment, 4, 1).expect("free")[0];
    let object = bench.node.table().get(segment).expect("was made").object;
    for last in [false, true] {
        assert_eq!(bench.hear(Message::Dropped(object, last)), []);
        assert!(bench.node.table().record(object).is_some() && bench.node.is_quiet(), "the last: {last}");
    }
}

#[test]
fn extents_end_before_what_follows_them() {
    let middle = Extent { first: 4, pages: 4 };
    let at = |first, pages| Extent { first, pages };
    assert_eq!((middle.end(), middle.piece(0, 3), middle.piece(2, 3)), (8, at(4, 3), at(10, 3)));
    let overlap = [at(0, 4), at(0, 5), at(5, 1), at(7, 2), at(8, 2)].map(|other| middle.overlaps(other));
    assert_eq!(overlap, [false, true, true, true, false]);
    let within = [at(3, 2), at(4, 4), at(5, 1), at(4, 5), at(8, 1)].map(|other| middle.contains(other));
    assert_eq!(within, [false, true, true, false, false]);
}
