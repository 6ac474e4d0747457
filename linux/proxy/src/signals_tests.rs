//! Signals by their rules.

use super::*;
use zerocopy::FromZeros;

fn handler(flags: u64) -> Option<Action> {
    Some(Action { handler: 0x1000, flags, restorer: 0x2000, mask: u64::MAX })
}

#[test]
fn a_set_has_the_bits_and_a_cause_the_numbers_of_linux() {
    assert_eq!([1, 2, 9, 31, 64].map(bit), [1, 2, 0x100, 0x4000_0000, 1 << 63]);
    assert_eq!([code::SI_USER, code::SI_TIMER, code::SI_TKILL, code::SI_KERNEL], [0, !1, !5, 128]);
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

fn ignore() -> Option<Action> {
    Some(Action { handler: action::IGNORE, ..Action::default() })
}

#[test]
fn an_alternate_stack_holds_what_is_above_its_base_up_to_its_end() {
    let stack = AlternateStack { base: 0x1000, flags: 0, reserved: 0, bytes: 0x800 };
    assert_eq!([0x900, 0x1000, 0x1001, 0x1800, 0x1801].map(|at| stack.holds(at)), [false, false, true, true, false]);
    assert!(!AlternateStack { flags: STACK_DISABLED, ..stack }.holds(0x1800));
}

#[test]
fn only_a_cause_of_a_timer_has_one() {
    assert_eq!(Cause::timer(7, 1).timer_of(), Some(7));
    assert_eq!(Cause::of_process(code::SI_USER, 7).timer_of(), None);
}

#[test]
fn who_ignores_a_signal_loses_what_waits_of_it_and_nothing_else() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    let of = |value| Cause { code: -1, errno: 0, words: [1, value] };
    for value in 1..3 {
        for signal in [10, 12, 41, 42] {
            signals.post(signal, of(value), true);
        }
    }
    for signal in [10, 41] {
        signals.set_action(signal, ignore()).unwrap();
    }
    assert_eq!(signals.pending(&thread), bit(12) | bit(42));
    assert_eq!(signals.post(41, of(5), true), Posted::Kept);
    let taken = core::iter::from_fn(|| signals.take_of(&mut thread, u64::MAX));
    assert!(taken.map(|(signal, cause)| (signal, cause.words[1])).eq([(12, 1), (41, 5), (42, 1), (42, 2)]));
}

#[test]
fn who_asks_by_what_the_program_chose_is_not_told_what_is_so_by_default() {
    let mut signals = Signals::default();
    signals.set_action(10, ignore()).unwrap();
    signals.set_action(12, handler(0)).unwrap();
    let chosen = [9, 10, 11, 12, number::SIGCHLD].map(|signal| signals.is_ignored_by_choice(signal));
    assert_eq!(chosen, [false, true, false, false, false]);
}

#[test]
fn a_mask_for_a_call_is_not_the_lasting_one_and_never_blocks_all() {
    let mut thread = ThreadSignals::default();
    thread.change_mask(2, bit(10)).unwrap();
    thread.mask_for_a_call(bit(12) | UNBLOCKABLE);
    assert_eq!(thread.blocked, bit(12));
    assert_eq!([thread.take_lasting_mask(), thread.take_lasting_mask()], [bit(10), bit(12)]);
}

#[test]
fn a_handler_runs_with_its_mask_and_without_its_own_signal_unless_it_may_nest() {
    let mut signals = Signals::default();
    let thread = ThreadSignals { blocked: bit(12) | bit(14), ..ThreadSignals::default() };
    let action = Action { mask: bit(12) | bit(13) | UNBLOCKABLE, ..handler(0).unwrap() };
    let others = bit(12) | bit(13) | bit(14);
    assert_eq!(thread.mask_for(10, &action), others | bit(10));
    assert_eq!(thread.mask_for(10, &Action { flags: action::SA_NODEFER, ..action }), others);
    signals.set_action(10, Some(action)).unwrap();
    assert_eq!(signals.set_action(10, None), Ok(Action { mask: bit(12) | bit(13), ..action }));
}

/// One that is open and awaited makes it go on too.
#[test]
fn a_thread_goes_on_with_what_is_open_or_awaited() {
    let thread = ThreadSignals { blocked: bit(10) | bit(12), awaited: bit(12) | bit(14), ..ThreadSignals::default() };
    assert_eq!([10, 12, 13, 14].map(|signal| thread.wants(signal)), [false, true, true, true]);
}

#[test]
fn a_child_has_its_parents_masks_and_actions_and_nothing_that_waits() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    signals.set_action(10, handler(0)).unwrap();
    thread.begin(bit(10) | bit(40));
    (thread.awaited, thread.alternate.flags) = (bit(10), 0);
    for signal in [10, 40] {
        signals.post(signal, Cause::default(), true);
        signals.post_to(&mut thread, signal, Cause::default());
    }
    signals.become_child();
    thread.become_child();
    assert_eq!((signals.pending(&thread), thread.awaited), (0, 0));
    assert_eq!((thread.blocked, thread.alternate.flags), (bit(10) | bit(40), 0));
    assert_eq!(signals.set_action(10, None).unwrap().handler, 0x1000);
    // Nothing is left in its queues either.
    signals.post(40, Cause::of_process(0, 3), true);
    assert_eq!(core::iter::from_fn(|| signals.take_of(&mut thread, bit(40))).count(), 1);
}

#[test]
fn one_that_is_ignored_waits_if_it_is_blocked() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    let (child, window) = (number::SIGCHLD, number::SIGWINCH);
    assert_eq!(signals.post_to(&mut thread, child, Cause::default()), Posted::Ignored);
    thread.change_mask(2, bit(child) | bit(window)).unwrap();
    for signal in [child, window] {
        assert_eq!(signals.post_to(&mut thread, signal, Cause::default()), Posted::Kept);
    }
    assert!(signals.is_quiet(&thread));
    // What is ignored goes when it is open, and what is blocked stays.
    thread.change_mask(2, bit(window)).unwrap();
    signals.post_to(&mut thread, 10, Cause::default());
    assert_eq!(signals.take(&mut thread).unwrap().0, Delivery::End(10));
    assert_eq!(signals.pending(&thread), bit(window));
    signals.post(child, Cause::default(), true);
    thread.change_mask(2, 0).unwrap();
    assert!(!signals.has_deliverable(&thread), "all of it is ignored");
    assert_eq!((signals.take(&mut thread), signals.pending(&thread)), (None, 0));
}

#[test]
fn only_stop_signals_take_back_a_continuation_and_they_nothing_else() {
    use number::*;
    let (mut signals, thread) = (Signals::default(), ThreadSignals::default());
    for signal in [SIGCONT, SIGALRM] {
        signals.post(signal, Cause::default(), true);
    }
    assert_eq!(signals.pending(&thread), bit(SIGCONT) | bit(SIGALRM));
    assert!(signals.take_continued());
    signals.post(SIGTSTP, Cause::default(), true);
    assert_eq!(signals.pending(&thread), bit(SIGTSTP) | bit(SIGALRM));
    signals.post(SIGCONT, Cause::default(), true);
    assert_eq!(signals.pending(&thread), bit(SIGCONT) | bit(SIGALRM));
}

#[test]
fn a_fault_is_handled_unless_it_is_blocked() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    signals.set_action(11, handler(0)).unwrap();
    for _ in 0..2 {
        signals.force(&mut thread, 11, Cause::default());
        assert!(matches!(signals.take(&mut thread).unwrap().0, Delivery::Handle(11, _)));
    }
    thread.change_mask(2, bit(11) | bit(12)).unwrap();
    signals.force(&mut thread, 11, Cause::default());
    assert_eq!(signals.take(&mut thread).unwrap().0, Delivery::End(11));
    assert_eq!(thread.blocked, bit(12));
}

#[test]
fn the_next_one_says_whether_a_call_starts_again_and_whether_the_process_ends() {
    let mut signals = Signals::default();
    signals.set_action(10, handler(action::SA_RESTART)).unwrap();
    signals.set_action(12, handler(action::SA_NODEFER)).unwrap();
    let mut with = |signal| {
        let mut thread = ThreadSignals::default();
        signals.post_to(&mut thread, signal, Cause::default());
        let told = (signals.restarts_calls(&thread), signals.ends(&thread));
        signals.become_child();
        told
    };
    assert_eq!(with(0), (true, false), "there is none");
    assert_eq!([with(10), with(12)], [(true, false), (false, false)], "caught");
    assert_eq!([with(11), with(13)], [(true, true); 2], "deadly");
    assert_eq!(with(number::SIGTSTP), (true, false), "stops");
}

#[test]
fn a_thread_is_quiet_if_nothing_is_open_and_no_mask_is_to_be_put_back() {
    let (mut signals, mut thread) = (Signals::default(), ThreadSignals::default());
    assert!(signals.is_quiet(&thread));
    signals.post(10, Cause::default(), false);
    assert!(!signals.is_quiet(&thread));
    thread.change_mask(2, bit(10)).unwrap();
    assert!(signals.is_quiet(&thread));
    thread.mask_for_a_call(bit(10));
    assert!(!signals.is_quiet(&thread));
    thread.restore_mask();
    assert!(signals.is_quiet(&thread));
}
