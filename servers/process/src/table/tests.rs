//! What the table promises.

use super::*;

const ENDED: Interest = Interest { ended: true, stopped: false, continued: false, ordinary: true, clones: false };
const STOPS: Interest = Interest { stopped: true, continued: true, ..ENDED };
const SIGTSTP: u8 = 20;

fn found(process: ProcessId, state: ChildState) -> Waited {
    Waited::Found(ChildNews { process, state, cpu_ns: 0 })
}

fn child(table: &mut Table, parent: ProcessId, domain: u64) -> ProcessId {
    let id = table.prepare(parent, domain, domain << 32).unwrap();
    table.start(id);
    id
}

/// A child that has become another program.
fn program(table: &mut Table, domain: u64) -> ProcessId {
    let id = child(table, FIRST, domain);
    assert_eq!(table.describe(id, "other", "other"), Some(domain));
    id
}

#[test]
fn zombies_wait_for_their_parent_and_orphans_go_to_the_first() {
    let mut table = Table::default();
    assert_eq!(table.add_first(10, 10 << 32), FIRST);
    let middle = child(&mut table, FIRST, 11);
    let leaf = child(&mut table, middle, 12);
    assert_eq!(table.wait(middle, Target::Any, ENDED, true), Waited::None);
    assert_eq!(
        table.end(leaf, Ended::Exited(3)),
        Some(EndEffect {
            parent: Some((middle, SIGCHLD)),
            adopted: vec![],
            bereaved: vec![],
            stranded: vec![],
            unborn: vec![],
            machine_ends: false
        })
    );
    assert_eq!(table.end(leaf, Ended::Exited(4)), None);
    assert_eq!(table.by_domain(12), None);
    assert_eq!(table.wait(FIRST, Target::Process(leaf), ENDED, true), Waited::NoChild);
    let orphan = child(&mut table, middle, 13);
    assert_eq!(table.adopter(orphan), None);
    // The zombie has nobody left to tell.
    assert_eq!(table.end(middle, Ended::Signalled(9)).unwrap().adopted, [orphan]);
    assert_eq!((table.adopter(orphan), table.adopter(middle), table.adopter(FIRST)), (Some(FIRST), None, None));
    table.end(orphan, Ended::Exited(0)).unwrap();
    assert_eq!(
        table.wait(FIRST, Target::Process(orphan), ENDED, true),
        found(orphan, ChildState::Ended(Ended::Exited(0)))
    );
    assert_eq!(table.wait(FIRST, Target::Process(leaf), ENDED, true), found(leaf, ChildState::Ended(Ended::Exited(3))));
    assert_eq!(table.wait(FIRST, Target::Any, ENDED, true), found(middle, ChildState::Ended(Ended::Signalled(9))));
    assert_eq!(table.wait(FIRST, Target::Any, ENDED, true), Waited::NoChild);
    assert!(table.end(FIRST, Ended::Exited(0)).unwrap().machine_ends);
}

#[test]
fn a_first_program_that_leaves_itself_behind_went_into_the_background() {
    let after = |how: Ended, other: &str, ends: bool| {
        let mut table = Table::default();
        table.add_first(10, 10 << 32);
        table.describe(FIRST, "serverd", "serverd -d");
        let child = table.prepare(FIRST, 11, 11 << 32).unwrap();
        if !other.is_empty() {
            table.describe(child, other, other);
        }
        if ends {
            table.end(child, Ended::Exited(0)).unwrap();
        }
        assert_eq!(table.background(), None, "the first program still runs");
        table.end(FIRST, how).unwrap();
        table.background().map(String::from)
    };
    // Its child need not be heard of yet.
    assert_eq!(after(Ended::Exited(0), "", false).as_deref(), Some("serverd"));
    assert_eq!(after(Ended::Exited(0), "", true), None);
    assert_eq!(after(Ended::Exited(0), "sleep", false), None);
    assert_eq!(after(Ended::Exited(1), "", false), None);
    assert_eq!(after(Ended::Signalled(15), "", false), None);
    assert_eq!(Table::default().background(), None);
}

#[test]
fn a_child_that_is_not_started_does_not_outlive_its_parent() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let parent = child(&mut table, FIRST, 11);
    let (unheard, unborn) =
        (table.prepare(parent, 12, 12 << 32).unwrap(), table.prepare(parent, 13, 13 << 32).unwrap());
    let effect = table.end(parent, Ended::Signalled(9)).unwrap();
    assert_eq!((effect.unborn, effect.adopted), (vec![12, 13], vec![unheard, unborn]));
    // One was started all the same, and is heard of later; the other is thrown away.
    table.start(unheard);
    table.cancel(unborn);
    assert_eq!(table.living_domains(), [10, 12]);
    assert_eq!(table.room(parent), Err(ProcessError::NotFound), "one that has ended makes no child");
    assert!(table.prepare(parent, 14, 14 << 32).is_err());
}

#[test]
fn who_is_being_ended_is_there_until_it_has_ended_and_makes_no_child() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let killed = child(&mut table, FIRST, 11);
    assert_eq!((table.kill(killed), table.kill(killed)), (Some(11), None));
    assert_eq!(table.prepare(killed, 12, 12 << 32), Err(ProcessError::NotFound));
    assert_eq!(table.wait(FIRST, Target::Any, ENDED, true), Waited::None, "its parent hears of it when it has ended");
    table.end(killed, Ended::Signalled(9)).unwrap();
    assert_eq!(table.kill(killed), None);
    assert!(matches!(table.wait(FIRST, Target::Any, ENDED, true), Waited::Found(_)));
}

#[test]
fn a_prepared_child_is_there_until_it_is_cancelled() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let id = table.prepare(FIRST, 11, 11 << 32).unwrap();
    assert_eq!(table.wait(FIRST, Target::Any, ENDED, true), Waited::None);
    assert_eq!(table.signalled(FIRST, Target::Process(id)).unwrap(), [id]);
    assert_eq!(table.prepared(FIRST, id), Ok(11));
    assert_eq!(table.prepared(5, id), Err(ProcessError::NotFound));
    table.cancel(id);
    assert!(table.get(id).is_none());
    assert_eq!(table.wait(FIRST, Target::Any, ENDED, true), Waited::NoChild);
    table.cancel(FIRST);
    assert!(table.get(FIRST).is_some());
}

#[test]
fn stops_are_told_once_and_only_to_who_asks() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let job = child(&mut table, FIRST, 11);
    table.set_group(FIRST, job, 0).unwrap();
    assert_eq!(table.stop(job, SIGTSTP), Some(Some(FIRST)));
    assert_eq!(table.wait(FIRST, Target::Any, ENDED, true), Waited::None);
    assert_eq!(table.wait(FIRST, Target::Any, STOPS, true), found(job, ChildState::Stopped(SIGTSTP)));
    assert_eq!(table.wait(FIRST, Target::Any, STOPS, true), Waited::None);
    table.watch_children(FIRST, false, false);
    assert_eq!((table.resumed(job), table.resumed(job)), (Some(None), None));
    assert_eq!(table.wait(FIRST, Target::Process(job), STOPS, true), found(job, ChildState::Continued));
    table.stop(job, SIGSTOP).unwrap();
    table.end(job, Ended::Signalled(9)).unwrap();
    assert_eq!(table.wait(FIRST, Target::Any, STOPS, true), found(job, ChildState::Ended(Ended::Signalled(9))));
}

#[test]
fn nobody_stops_whom_nobody_could_continue() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    assert_eq!((table.stop(FIRST, SIGSTOP), table.stop(FIRST, SIGTSTP)), (None, None));
    // Nobody could continue the first program's own group.
    let (shell, other) = (child(&mut table, FIRST, 11), child(&mut table, FIRST, 12));
    assert_eq!(table.stop(other, SIGTSTP), None);
    assert!(table.stop(other, SIGSTOP).is_some());
    table.new_session(shell).unwrap();
    let job = child(&mut table, shell, 13);
    table.set_group(shell, job, 0).unwrap();
    let helper = child(&mut table, job, 14);
    assert!(table.stop(job, SIGTSTP).is_some());
    assert_eq!(table.may_use_terminal(job, shell), Err(false));
    assert_eq!(table.may_use_terminal(job, job), Ok(()));
    assert_eq!(table.may_use_terminal(job, FIRST), Ok(()), "another session's terminal");
    // The shell could continue the job; when it ends, the job is told.
    assert_eq!(table.end(shell, Ended::Exited(0)).unwrap().stranded, [job, helper]);
    assert_eq!(table.stop(helper, SIGTSTP), None);
}

#[test]
fn ignored_children_vanish() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    table.watch_children(FIRST, true, true);
    for domain in 0..1000 {
        let id = child(&mut table, FIRST, 100 + domain);
        assert!(table.get(id).unwrap().discards_children);
        table.end(id, Ended::Exited(0)).unwrap();
    }
    assert_eq!(table.ids(0).count(), 1);
}

#[test]
fn a_fork_bomb_meets_the_limit() {
    let mut table = Table::default();
    table.add_first(1, 1 << 32);
    let mut program = |first: u64| {
        let id = program(&mut table, first);
        (first + 1..).map_while(|domain| table.prepare(id, domain, domain << 32).ok()).count()
    };
    assert_eq!(
        [1000, 2000, 3000].map(&mut program),
        [BRANCH_MAX - 1, BRANCH_MAX - 1, MAX_PROCESSES - 2 * BRANCH_MAX - 2]
    );
    assert_eq!(table.prepare(FIRST, 9999, 9999 << 32), Err(ProcessError::TooMany));
}

#[test]
fn a_fork_bomb_leaves_room_for_other_branches() {
    let mut table = Table::default();
    table.add_first(1, 1 << 32);
    let (bomb, other) = (program(&mut table, 2), program(&mut table, 3));
    let mut last = bomb;
    let mut made = 1;
    while let Ok(next) = table.prepare(last, 1000 + made, (1000 + made) << 32) {
        table.start(next);
        (last, made) = (next, made + 1);
    }
    assert_eq!(made, BRANCH_MAX as u64);
    assert_eq!(table.prepare(bomb, 9998, 9998 << 32), Err(ProcessError::TooMany));
    assert_eq!((table.room(other), table.room(FIRST)), (Ok(SPARE_PAGES_EACH), Ok(0)));
    assert!(table.prepare(other, 9999, 9999 << 32).is_ok() && table.prepare(FIRST, 10_000, (10_000) << 32).is_ok());
}

/// The first program and what it forks are one branch, whichever of them forks. What becomes
/// another program begins a branch, and has a place in the first one's.
#[test]
fn the_first_programs_own_forks_leave_room_for_other_programs() {
    let mut table = Table::default();
    table.add_first(1, 1 << 32);
    assert_eq!(table.room(FIRST), Ok(0));
    let server = program(&mut table, 2);
    assert_eq!((table.room(FIRST), table.room(server)), (Ok(0), Ok(SPARE_PAGES_EACH)));
    assert_eq!(table.describe(server, "again", ""), None, "it has its branch");
    let request = child(&mut table, server, 3);
    assert_eq!(table.describe(request, "script", ""), None, "it is of its parent's");
    let mut parents = vec![FIRST];
    while let Ok(next) = table.prepare(parents[parents.len() / 2], 1000 + parents.len() as u64, 1 << 40) {
        table.start(next);
        parents.push(next);
    }
    assert_eq!(parents.len(), BRANCH_MAX - 1);
    assert!(table.prepare(server, 9999, 1 << 41).is_ok());
    // One of them becomes another program, and so begins a branch, but frees no place.
    let last = *parents.last().unwrap();
    assert!(table.describe(last, "daemon", "").is_some() && table.room(FIRST).is_err());
    table.end(last, Ended::Exited(0));
    table.watch_children(table.get(last).unwrap().parent, true, true);
    assert!(table.room(FIRST).is_ok());
    // Programs without end are bounded as forks are.
    let mut begun = 0;
    while let Ok(id) = table.prepare(FIRST, 20_000 + begun, (20_000 + begun) << 32) {
        assert_eq!(table.describe(id, "one of many", ""), Some(20_000 + begun));
        begun += 1;
    }
    assert!(begun == 1 && table.prepare(server, 30_000, 1 << 42).is_ok(), "{begun} were begun");
}

/// Each of a bomb's processes asks for a child while those of the others are being made: the
/// channels of all these would be as many as the bomb's own.
#[test]
fn children_that_are_being_made_have_their_places() {
    let mut table = Table::default();
    table.add_first(1, 1 << 32);
    let (bomb, other) = (program(&mut table, 2), program(&mut table, 3));
    let begun = (1..).map_while(|_| table.begin(bomb).ok()).last().unwrap();
    assert_eq!(begun, ((BRANCH_MAX as u64 - 1) * SPARE_PAGES_EACH, bomb));
    assert_eq!((table.begin(bomb), table.room(other)), (Err(ProcessError::TooMany), Ok(SPARE_PAGES_EACH)));
    // One is made, one could not be.
    table.made(bomb);
    assert!(table.prepare(bomb, 4, 4 << 32).is_ok());
    table.made(bomb);
    assert!(table.begin(bomb).is_ok() && table.begin(bomb).is_err());
    let made = (1..).map_while(|_| table.begin(FIRST).ok()).count();
    assert_eq!(made, BRANCH_MAX - 3, "itself and two programs have places there");
}

#[test]
fn groups_and_sessions_follow_posix() {
    let mut table = Table::default();
    table.add_first(1, 1 << 32);
    let (one, two) = (child(&mut table, FIRST, 2), child(&mut table, FIRST, 3));
    assert_eq!(table.groups(one, 0), Ok((FIRST, FIRST)));
    table.set_group(FIRST, one, 0).unwrap();
    table.set_group(FIRST, two, one).unwrap();
    assert_eq!(table.signalled(FIRST, Target::Group(one)).unwrap(), [one, two]);
    assert_eq!(table.set_group(FIRST, two, 77), Err(ProcessError::Denied));
    assert_eq!(table.set_group(FIRST, FIRST, 0), Err(ProcessError::Denied));
    assert_eq!(table.set_group(two, one, 0), Err(ProcessError::NotFound));
    assert_eq!(table.new_session(one), Err(ProcessError::Denied));
    assert_eq!(table.new_session(two), Ok(two));
    assert_eq!(table.groups(FIRST, two), Ok((two, two)));
    assert_eq!(table.set_group(FIRST, two, one), Err(ProcessError::Denied));
    assert_eq!(table.signalled(one, Target::Any).unwrap(), [two]);
    assert_eq!(table.signalled(one, Target::Process(500)), Err(ProcessError::NotFound));
    table.end(two, Ended::Exited(0));
    assert_eq!(table.signalled(one, Target::Process(two)), Ok(vec![]));
}

#[test]
fn ids_wrap_without_reuse_and_names_are_cut_at_characters() {
    let mut table = Table { last_id: LAST_ID - 1, ..Table::default() };
    let first = table.add_first(1, 1 << 32);
    assert_eq!(first, LAST_ID);
    let next = table.prepare(first, 2, 2 << 32).unwrap();
    assert_eq!(next, 2);
    table.describe(next, "eine-lange-namä-x", "");
    assert_eq!(table.get(next).unwrap().name, "eine-lange-nam");
}

#[test]
fn what_children_used_is_added_when_they_are_waited_for() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let middle = child(&mut table, FIRST, 11);
    let leaf = child(&mut table, middle, 12);
    table.used(leaf, 5);
    table.end(leaf, Ended::Exited(0));
    let news = Waited::Found(ChildNews { process: leaf, state: ChildState::Ended(Ended::Exited(0)), cpu_ns: 5 });
    assert_eq!(table.wait(middle, Target::Any, ENDED, false), news, "which leaves it there");
    assert_eq!(table.wait(middle, Target::Any, ENDED, true), news);
    assert_eq!(table.wait(middle, Target::Any, ENDED, true), Waited::NoChild);
    table.used(middle, 7);
    table.end(middle, Ended::Exited(1));
    assert!(matches!(table.wait(FIRST, Target::Any, ENDED, true), Waited::Found(ChildNews { cpu_ns: 12, .. })));
    assert_eq!(table.get(FIRST).unwrap().children_cpu_ns, 12);
}

#[test]
fn another_signal_tells_the_end_of_a_clone() {
    const SIGUSR1: u8 = 10;
    const CLONES: Interest = Interest { ordinary: false, clones: true, ..ENDED };
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let [silent, loud, program] = [11, 12, 13].map(|domain| child(&mut table, FIRST, domain));
    table.set_end_signal(silent, 0);
    table.set_end_signal(loud, SIGUSR1);
    table.set_end_signal(program, SIGUSR1);
    assert_eq!(table.wait(FIRST, Target::Process(program), ENDED, true), Waited::NoChild);
    table.describe(program, "other", "other");
    assert_eq!(table.wait(FIRST, Target::Process(program), ENDED, true), Waited::None, "SIGCHLD is of all that exec");
    // Clones do not vanish.
    table.watch_children(FIRST, true, true);
    let mut end = |id| table.end(id, Ended::Exited(1)).unwrap().parent;
    assert_eq!([end(silent), end(loud), end(program)], [None, Some((FIRST, SIGUSR1)), Some((FIRST, SIGCHLD))]);
    table.watch_children(FIRST, true, true);
    let news = |id| found(id, ChildState::Ended(Ended::Exited(1)));
    assert_eq!(table.wait(FIRST, Target::Any, ENDED, true), Waited::NoChild);
    assert_eq!(table.wait(FIRST, Target::Any, CLONES, true), news(silent));
    assert_eq!(table.wait(FIRST, Target::Any, Interest { ordinary: true, ..CLONES }, true), news(loud));
    assert_eq!(table.wait(FIRST, Target::Any, CLONES, true), Waited::NoChild);
}

#[test]
fn an_orphan_hears_of_its_parents_end_and_tells_its_own_as_all_do() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let parent = child(&mut table, FIRST, 11);
    let [asks, asks_not, has_ended] = [12, 13, 14].map(|domain| child(&mut table, parent, domain));
    for id in [parent, asks, has_ended] {
        assert_eq!(table.parent_death(id, Some(15)), Ok(15));
    }
    table.set_end_signal(asks_not, 0);
    assert_eq!(table.parent_death(asks, Some(SIGNAL_LAST + 1)), Err(ProcessError::Invalid));
    assert_eq!(table.parent_death(asks, None), Ok(15));
    let born = child(&mut table, asks, 15);
    assert_eq!(table.parent_death(born, None), Ok(0), "a child begins without");
    table.end(has_ended, Ended::Exited(0)).unwrap();
    assert_eq!(table.end(parent, Ended::Exited(0)).unwrap().bereaved, [(asks, 15)]);
    assert_eq!(table.end(asks_not, Ended::Exited(0)).unwrap().parent, Some((FIRST, SIGCHLD)));
    // Who becomes another user asks for none.
    table.set_ids(asks, true, IdChange::One(0)).unwrap();
    assert_eq!(table.parent_death(asks, None), Ok(15));
    table.set_ids(asks, true, IdChange::One(7)).unwrap();
    assert_eq!(table.parent_death(asks, None), Ok(0));
}

#[test]
fn a_user_has_so_many_processes_and_root_all() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let own = child(&mut table, FIRST, 11);
    table.set_ids(own, true, IdChange::One(7)).unwrap();
    let within = |table: &Table, limits: [u32; 2]| limits.map(|limit| table.within(own, limit));
    assert_eq!(within(&table, [1, 2]), [Err(ProcessError::TooMany), Ok(())]);
    let ended = child(&mut table, own, 12);
    table.end(ended, Ended::Exited(0)).unwrap();
    assert_eq!(within(&table, [2, 3]), [Err(ProcessError::TooMany), Ok(())], "until it is waited for");
    assert_eq!(table.within(FIRST, 0), Ok(()));
    table.wait(own, Target::Any, ENDED, true);
    assert_eq!(within(&table, [1, 2]), [Err(ProcessError::TooMany), Ok(())]);
}

/// An id that a process, a group, a session or a branch bears is no new process's, though its
/// first bearer is gone.
#[test]
fn an_id_that_anything_bears_is_given_to_nobody() {
    enum Bears {
        Process,
        Group,
        Session,
        Branch,
    }
    for bears in [Bears::Process, Bears::Group, Bears::Session, Bears::Branch] {
        let mut table = Table::default();
        table.add_first(1, 1 << 32);
        let first = child(&mut table, FIRST, 2);
        let other = match bears {
            Bears::Process => first,
            Bears::Group => {
                table.set_group(first, 0, 0).unwrap();
                let other = child(&mut table, first, 3);
                assert_eq!(table.groups(other, 0), Ok((first, FIRST)));
                other
            }
            Bears::Session => {
                table.new_session(first).unwrap();
                let other = child(&mut table, first, 3);
                table.set_group(other, 0, 0).unwrap();
                assert_eq!(table.groups(other, 0), Ok((other, first)));
                other
            }
            Bears::Branch => {
                assert!(table.describe(first, "other", "").is_some());
                child(&mut table, first, 3)
            }
        };
        if other != first {
            table.end(first, Ended::Exited(0)).unwrap();
            assert_eq!(table.wait(FIRST, Target::Process(first), ENDED, true), found_ended(first));
        }
        table.last_id = first - 1;
        let next = table.prepare(FIRST, 9, 9 << 32).unwrap();
        assert_eq!(next, other + 1);
        assert_eq!(table.prepare(FIRST, 10, 10 << 32), Ok(next + 1));
    }
}

fn found_ended(process: ProcessId) -> Waited {
    found(process, ChildState::Ended(Ended::Exited(0)))
}

#[test]
fn a_child_has_not_what_its_parent_did() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let middle = child(&mut table, FIRST, 11);
    let parent = child(&mut table, middle, 12);
    table.set_group(middle, parent, 0).unwrap();
    table.stop(parent, SIGSTOP).unwrap();
    table.end(middle, Ended::Exited(0)).unwrap();
    table.used(parent, 5);
    let leaf = child(&mut table, parent, 13);
    table.used(leaf, 7);
    table.end(leaf, Ended::Exited(0)).unwrap();
    table.wait(parent, Target::Any, ENDED, true);
    table.parent_death(parent, Some(9)).unwrap();
    table.set_end_signal(parent, 0);
    let like = table.get(parent).unwrap();
    assert!(like.is_adopted && like.stopped && like.news.is_some() && like.children_cpu_ns == 7);
    let born = table.prepare(parent, 14, 14 << 32).unwrap();
    let born = table.get(born).unwrap();
    assert_eq!((born.parent, born.is_adopted, born.phase), (parent, false, Phase::Prepared));
    assert_eq!((born.stopped, born.news, born.cpu_ns, born.children_cpu_ns), (false, None, 0, 0));
    assert_eq!((born.end_signal, born.parent_death, born.group), (SIGCHLD, 0, parent));
}

#[test]
fn who_is_or_acts_as_root_has_no_limit() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let own = child(&mut table, FIRST, 11);
    for (ids, outcome) in [([7, 0, 0], Ok(())), ([0, 7, 0], Ok(())), ([7, 7, 0], Err(ProcessError::TooMany))] {
        let [real, effective, saved] = ids;
        table.processes.get_mut(&own).unwrap().identity.users = Ids { real, effective, saved };
        assert_eq!(table.within(own, 1), outcome, "{ids:?}");
    }
}

/// An heir that ignores SIGCHLD waits for none that it is left with; those of others stay.
#[test]
fn zombies_that_are_left_to_who_ignores_them_vanish() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let [parent, other] = [11, 12].map(|domain| child(&mut table, FIRST, domain));
    for id in [parent, other] {
        table.watch_children(id, false, true);
    }
    let [left, living] = [13, 14].map(|domain| child(&mut table, parent, domain));
    let kept = child(&mut table, other, 15);
    for id in [left, kept] {
        table.end(id, Ended::Exited(0)).unwrap();
    }
    table.watch_children(FIRST, true, true);
    table.end(parent, Ended::Exited(0)).unwrap();
    assert_eq!(table.ids(0).collect::<Vec<_>>(), [FIRST, other, living, kept]);
    assert_eq!(table.wait(other, Target::Any, ENDED, true), found_ended(kept));
}

#[test]
fn own_group_is_the_callers() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let [one, two] = [11, 12].map(|domain| child(&mut table, FIRST, domain));
    table.set_group(FIRST, two, 0).unwrap();
    assert_eq!(table.signalled(FIRST, Target::OwnGroup), Ok(vec![FIRST, one]));
    assert_eq!(table.signalled(two, Target::OwnGroup), Ok(vec![two]));
    table.end(two, Ended::Exited(0)).unwrap();
    assert_eq!(table.wait(FIRST, Target::OwnGroup, ENDED, true), Waited::None, "one lives");
    assert_eq!(table.wait(FIRST, Target::Group(two), ENDED, true), found_ended(two));
}

#[test]
fn a_process_that_there_is_changes_itself_within_what_it_may() {
    let mut table = Table::default();
    table.add_first(10, 10 << 32);
    let few = Capabilities { effective: 0, permitted: 1, ..Capabilities::default() };
    table.set_groups(FIRST, vec![7, 8]).unwrap();
    table.set_capabilities(FIRST, few).unwrap();
    let own = &table.get(FIRST).unwrap().identity;
    assert_eq!((&own.others[..], own.capabilities), (&[7, 8][..], few));
    assert_eq!(table.set_groups(FIRST, vec![9]), Err(ProcessError::Denied));
    assert_eq!(table.set_capabilities(FIRST, Capabilities::default()), Err(ProcessError::Denied));
    assert_eq!(table.set_groups(9, vec![]), Err(ProcessError::NotFound));
    assert_eq!(table.set_capabilities(9, few), Err(ProcessError::NotFound));
    assert_eq!(table.parent_death(FIRST, Some(SIGNAL_LAST)), Ok(SIGNAL_LAST));
}
