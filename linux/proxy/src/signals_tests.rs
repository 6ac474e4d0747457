//! Signals by their rules.

use super::*;
use zerocopy::FromZeros;

fn handler(flags: u64) -> Option<Action> {
    Some(Action { handler: 0x1000, flags, restorer: 0x2000, mask: u64::MAX })
}

#[test]
fn kill_and_stop_stay_out_of_reach() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    assert_eq!(signals.set_action(9, handler(0)), Err(Errno::EINVAL));
    assert_eq!(signals.set_action(0, None), Err(Errno::EINVAL));
    assert_eq!(signals.set_action(65, None), Err(Errno::EINVAL));
    thread.change_mask(2, u64::MAX).unwrap();
    assert_eq!(thread.blocked & (bit(9) | bit(19)), 0);
    assert_eq!(thread.change_mask(3, 0), Err(Errno::EINVAL));
    signals.post_to(&mut thread, 9, Cause::default());
    assert_eq!(signals.take(&mut thread).unwrap().0, Delivery::End(9));
}

#[test]
fn blocked_ones_wait_and_handlers_mask() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    signals.set_action(10, handler(action::SA_RESETHAND)).unwrap();
    thread.change_mask(0, bit(10)).unwrap();
    signals.post_to(&mut thread, 10, Cause::of_process(0, 5));
    assert!(!signals.has_deliverable(&thread) && signals.take(&mut thread).is_none());
    thread.change_mask(1, bit(10)).unwrap();
    let (Delivery::Handle(10, action), cause) = signals.take(&mut thread).unwrap() else { panic!() };
    assert_eq!(cause.words[0], 5);
    assert_eq!(thread.mask_for(10, &action), !UNBLOCKABLE);
    signals.post_to(&mut thread, 10, Cause::default());
    assert_eq!(signals.take(&mut thread).unwrap().0, Delivery::End(10), "SA_RESETHAND");
}

#[test]
fn stopping_and_continuing_take_each_other_back() {
    use number::*;
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    signals.post_to(&mut thread, SIGTSTP, Cause::default());
    assert!(signals.has_deliverable(&thread) && signals.restarts_calls(&thread));
    signals.post_to(&mut thread, SIGCONT, Cause::default());
    assert!(signals.take(&mut thread).is_none() && signals.take_continued() && !signals.take_continued());
    signals.post_to(&mut thread, SIGCONT, Cause::default());
    signals.post_to(&mut thread, SIGSTOP, Cause::default());
    assert!(!signals.take_continued());
    assert_eq!(signals.take(&mut thread).unwrap().0, Delivery::Stop(SIGSTOP));
    // A caught one is no stop, and one behind a deadly signal waits.
    signals.set_action(SIGTSTP.into(), handler(0)).unwrap();
    signals.post_to(&mut thread, SIGTSTP, Cause::default());
    assert_eq!(signals.take_stop(&mut thread), None);
    assert!(matches!(signals.take(&mut thread).unwrap().0, Delivery::Handle(SIGTSTP, _)));
    signals.post_to(&mut thread, SIGTTIN, Cause::default());
    assert_eq!((signals.take_stop(&mut thread), signals.take_stop(&mut thread)), (Some(SIGTTIN), None));
    signals.post_to(&mut thread, SIGTTIN, Cause::default());
    signals.post_to(&mut thread, SIGALRM, Cause::default());
    assert_eq!(signals.take_stop(&mut thread), None);
}

#[test]
fn ignored_ones_vanish_but_faults_end() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    signals.post_to(&mut thread, number::SIGCHLD, Cause::default());
    signals.post_to(&mut thread, 0, Cause::default());
    signals.post_to(&mut thread, 200, Cause::default());
    assert_eq!(signals.take(&mut thread), None);
    signals.set_action(11, Some(Action { handler: action::IGNORE, ..Action::default() })).unwrap();
    signals.post_to(&mut thread, 11, Cause::default());
    assert_eq!(signals.take(&mut thread), None);
    signals.force(&mut thread, 11, Cause::default());
    assert_eq!(signals.take(&mut thread).unwrap().0, Delivery::End(11));
    signals.set_action(10, handler(0)).unwrap();
    signals.reset_for_exec();
    assert_eq!(signals.set_action(10, None).unwrap().handler, action::DEFAULT);
}

#[test]
fn flags_that_are_not_known_are_not_told_back() {
    let mut signals = Signals::default();
    // SA_UNSUPPORTED, by which programs ask, and one of later systems.
    signals.set_action(10, handler(action::SA_RESTART | 0x400 | 0x1000)).unwrap();
    assert_eq!(signals.set_action(10, None).unwrap().flags, action::SA_RESTART);
    signals.set_action(10, handler(action::KNOWN)).unwrap();
    assert_eq!(signals.set_action(10, None).unwrap().flags, 0xdc00_0807);
}

#[test]
fn one_thread_takes_what_came_to_the_process() {
    let mut signals = Signals::default();
    let (mut first, mut second) = (ThreadSignals::default(), ThreadSignals::default());
    signals.set_action(10, handler(0)).unwrap();
    first.change_mask(0, bit(10)).unwrap();
    signals.post(10, Cause::default(), false);
    assert!(!first.wants(10) && second.wants(10));
    assert!(!signals.has_deliverable(&first) && signals.has_deliverable(&second));
    assert!(matches!(signals.take(&mut second).unwrap().0, Delivery::Handle(10, _)));
    assert!(signals.take(&mut second).is_none());
    // One for the first alone is not the second's, and can be awaited though blocked.
    signals.post_to(&mut first, 10, Cause::of_process(0, 7));
    assert!(signals.take(&mut second).is_none() && signals.take(&mut first).is_none());
    first.awaited = bit(10);
    assert!(first.wants(10));
    assert_eq!(signals.take_of(&mut first, bit(10)).map(|(signal, cause)| (signal, cause.words[0])), Some((10, 7)));
    assert_eq!(signals.take_of(&mut first, bit(10)), None);
    // A mask for one call ends with it.
    first.mask_for_a_call(0);
    assert_eq!(first.blocked, 0);
    first.restore_mask();
    assert_eq!((first.blocked, first.take_lasting_mask()), (bit(10), bit(10)));
    first.alternate = AlternateStack { flags: 0, ..AlternateStack::default() };
    let mut new: ThreadSignals = FromZeros::new_zeroed();
    new.begin(first.blocked);
    assert_eq!((new.blocked, new.alternate), (bit(10), AlternateStack::default()));
}

#[test]
fn those_of_real_time_queue_with_their_data() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    thread.change_mask(0, u64::MAX).unwrap();
    let of = |value| Cause { code: -1, errno: 0, words: [1, value] };
    let (usr, queued) = (bit(10), bit(40));
    assert_eq!(signals.post(10, of(1), true), Posted::Kept);
    assert_eq!(signals.post(10, of(2), true), Posted::Known);
    assert_eq!(signals.take_of(&mut thread, usr), Some((10, of(1))));
    assert_eq!(signals.take_of(&mut thread, usr), None);
    (1..4).for_each(|value| assert_eq!(signals.post(40, of(value), true), Posted::Kept));
    signals.post(41, of(9), true);
    signals.post_to(&mut thread, 40, of(7));
    let mut taken = || signals.take_of(&mut thread, queued).map(|(_, cause)| cause.words[1]);
    assert_eq!([taken(), taken(), taken(), taken(), taken()], [Some(7), Some(1), Some(2), Some(3), None]);
    assert_eq!(signals.pending(&thread), bit(41));
    signals.set_action(41, Some(Action { handler: action::IGNORE, ..Action::default() })).unwrap();
    assert_eq!((signals.pending(&thread), signals.post(41, of(1), false)), (0, Posted::Ignored));
}

#[test]
fn a_full_queue_keeps_one_of_a_number() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    let of = |value| Cause { code: -1, errno: 0, words: [1, value] };
    (0..QUEUED_MAX as u64).for_each(|value| assert_eq!(signals.post(50, of(value), true), Posted::Kept));
    assert_eq!((signals.post(50, of(0), true), signals.post(51, of(5), true)), (Posted::Known, Posted::Kept));
    assert_eq!(signals.take_of(&mut thread, bit(51)), Some((51, of(5))));
    let count = core::iter::from_fn(|| signals.take_of(&mut thread, bit(50))).count();
    assert_eq!((count, signals.pending(&thread)), (QUEUED_MAX, 0));
}

#[test]
fn a_limit_bounds_what_is_queued_for_each() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    let of = |value| Cause { code: -1, errno: 0, words: [1, value] };
    signals.set_queued_max(2);
    (0..2).for_each(|value| assert_eq!(signals.post(50, of(value), true), Posted::Kept));
    assert!(!signals.has_room(None) && signals.has_room(Some(&thread)));
    assert_eq!((signals.post(50, of(2), true), signals.post(10, of(3), true)), (Posted::Known, Posted::Kept));
    (0..2).for_each(|value| assert_eq!(signals.post_to(&mut thread, 50, of(value)), Posted::Kept));
    assert!(!signals.has_room(Some(&thread)));
    // What waits already stays, and there is never more than there is room for.
    signals.set_queued_max(0);
    assert_eq!(core::iter::from_fn(|| signals.take_of(&mut thread, bit(50))).count(), 4);
    assert!(!signals.has_room(None));
    signals.set_queued_max(u64::MAX);
    (0..QUEUED_MAX as u64).for_each(|value| assert_eq!(signals.post(50, of(value), true), Posted::Kept));
    assert!(!signals.has_room(None));
}
