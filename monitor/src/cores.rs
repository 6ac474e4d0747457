//! Other cores come and go: core 0's monitor starts and halts them, at boot and while the system
//! runs.
//!
//! Invariants: a core is halted only when its monitor has made nothing that is still there, so
//! nobody elsewhere knows of anything on it; its link is gone from the table before, so nobody
//! makes anything while it is asked. One core changes at a time.

use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use abi::Error;
use channel::Memory;
use contracts::monitor::{MonitorClient, MonitorError, MonitorEvent};
use contracts::spawn::{Death, DomainId};
use monitor_core::{Dead, LostCores, Machine};
use runtime::{TaskId, now_ns};

use crate::link::{CORE_CHANGED, GREETED, Link};
use crate::service::{Service, log_failed, passed};

/// How often another monitor is notified: its kernel ends one that leaves that alone.
const BEAT_NS: u64 = 1_000_000_000;
/// How long a core may take to start or to halt.
const CHANGE_LIMIT_NS: u64 = 5_000_000_000;

/// A core that is up.
pub struct RemoteMonitor {
    /// Its monitor.
    pub client: MonitorClient,
    events: TaskId,
}

impl<M: Machine + 'static> Service<M> {
    /// Starts a core; its monitor is not up yet.
    pub fn start_core(&self, core: u32) -> Result<(Rc<Link>, Memory), Error> {
        let known = self.links.borrow().get(&core).cloned();
        let link = match known {
            Some(link) => link,
            None => {
                let link = Rc::new(Link::new(core)?);
                let (physical, pages) = link.place();
                self.registry.borrow().tell_borrowed(core, physical, pages, "link");
                let clock_place = self.registry.borrow().facts().clock_place;
                self.registry.borrow().tell_borrowed(core, clock_place, 1, "clock page");
                self.links.borrow_mut().insert(core, link.clone());
                link
            }
        };
        link.start(self.registry.borrow().facts().clock_place).map(|memory| (link, memory))
    }

    /// A core that was started is up: its events are ours to tell.
    pub fn link_up(self: &Rc<Self>, link: &Link, memory: Memory) -> Result<(), Error> {
        link.client(memory).map(|client| self.up(link.core(), client))
    }

    pub(crate) fn up(self: &Rc<Self>, core: u32, client: MonitorClient) {
        let events = runtime::spawn(self.clone().hear(core, client.clone()));
        self.remote_monitors.borrow_mut().insert(core, RemoteMonitor { client, events });
        self.lost.borrow_mut().up(core, now_ns());
        self.wake_waiting();
    }

    async fn hear(self: Rc<Self>, core: u32, client: MonitorClient) {
        loop {
            match client.next_event().await {
                MonitorEvent::Died { name, generation, linux, death } => {
                    self.elsewhere.borrow_mut().remove(&death.domain);
                    self.tell_death(&Dead { name, generation, linux, death });
                }
                MonitorEvent::Serving { domain } => self.tell(|listener| listener.serving(domain)),
                MonitorEvent::Wants { domain, request, contract, index } => {
                    self.tell(|listener| listener.wants(domain, request, contract.clone(), index));
                }
                MonitorEvent::Stalled { domain } => self.tell(|listener| listener.stalled(domain)),
                MonitorEvent::Lost => {
                    runtime::log!("core {core}: events were lost");
                    self.tell_lost();
                }
                MonitorEvent::PeerRestarted => {}
                MonitorEvent::CoreLost { .. } => {}
                MonitorEvent::Closed => {
                    runtime::log!("core {core}: its monitor does not keep the contract");
                    self.is_lost(core, &client);
                    return;
                }
            }
        }
    }

    /// Beats the monitors of other cores.
    pub async fn beat_monitors(self: Rc<Self>) {
        if self.cores() == 1 {
            return;
        }
        loop {
            runtime::sleep(BEAT_NS).await;
            self.links.borrow().values().for_each(|link| link.ring());
        }
    }

    /// Looks for cores whose monitor ended by itself or was ended by its kernel.
    pub async fn watch_cores(self: Rc<Self>) {
        loop {
            let is_gone = |core: &u32| self.links.borrow().get(core).is_some_and(|link| link.is_halted());
            self.cores_changed.changed();
            let gone: Vec<u32> = self.remote_monitors.borrow().keys().copied().filter(is_gone).collect();
            for core in gone {
                runtime::log!("core {core}: its monitor has ended");
                runtime::spawn(self.clone().core_lost(core));
            }
            runtime::notified(CORE_CHANGED).await;
        }
    }

    /// The monitor of a core is no use any more, if `client` is still its own: everybody is told
    /// that what was there is gone, and the core is run again.
    pub fn is_lost(self: &Rc<Self>, core: u32, client: &MonitorClient) {
        let is_it = |remote: &RemoteMonitor| Rc::ptr_eq(remote.client.channel(), client.channel());
        if self.remote_monitors.borrow().get(&core).is_some_and(is_it) {
            runtime::spawn(self.clone().core_lost(core));
        }
    }

    async fn core_lost(self: Rc<Self>, core: u32) {
        let remote = self.remote_monitors.borrow_mut().remove(&core);
        let (Some(remote), Some(link)) = (remote, self.links.borrow_mut().remove(&core)) else { return };
        self.lost.borrow_mut().lost(core, now_ns());
        lose(core, Gone { service: self, remote, link }).await;
    }

    /// All cores that start at boot did: from now on they may be changed.
    pub fn cores_are_up(&self) {
        self.changing.set(false);
        self.booted.set(true);
        self.wake_waiting();
    }

    /// Starts a core that was halted, or halts one on which there is nothing.
    pub async fn change_core(self: &Rc<Self>, core: u32, run: bool) -> Result<(), MonitorError> {
        if !self.is_first() || core == 0 || core >= self.cores() {
            return Err(MonitorError::NoCore);
        }
        if self.changing.replace(true) {
            return Err(MonitorError::Busy);
        }
        let is_up = self.remote_monitors.borrow().contains_key(&core);
        let changed = match (run, is_up) {
            (true, false) => self.run_again(core).await,
            (false, true) => self.halt(core).await,
            _ => Ok(()),
        };
        self.changing.set(false);
        changed
    }

    async fn run_again(self: &Rc<Self>, core: u32) -> Result<(), MonitorError> {
        let started = self.start_core(core).map_err(|error| match error {
            Error::Busy => MonitorError::Busy,
            error => log_failed(&format!("core {core} does not start: {}", error.name())),
        })?;
        let (link, memory) = started;
        let greets = until(GREETED, || link.is_up());
        bring_up(core, greets, || self.link_up(&link, memory), self.give_up(&link)).await
    }

    /// Halts a core that was started and is not up, so that it may be started again.
    pub async fn give_up(&self, link: &Link) -> Result<(), MonitorError> {
        self.halt_link(link).await?;
        link.release_core();
        Ok(())
    }

    async fn halt(self: &Rc<Self>, core: u32) -> Result<(), MonitorError> {
        let Some(remote) = self.remote_monitors.borrow_mut().remove(&core) else { return Err(MonitorError::NoCore) };
        if let Err(error) = passed(remote.client.leave(core).await) {
            self.remote_monitors.borrow_mut().insert(core, remote);
            return Err(error);
        }
        runtime::abort(remote.events);
        let link = self.links.borrow().get(&core).cloned().ok_or(MonitorError::NoCore)?;
        self.halt_link(&link).await?;
        // Not before: a monitor whose link is closed would end by itself.
        drop(remote);
        link.release_core();
        Ok(())
    }

    /// Halts a core, whatever runs there.
    async fn halt_link(&self, link: &Link) -> Result<(), MonitorError> {
        let core = link.core();
        link.halt().map_err(|error| log_failed(&format!("core {core} does not halt: {}", error.name())))?;
        let halted = self.cores_changed.until(|| link.is_halted().then_some(()));
        let halted = runtime::timeout(CHANGE_LIMIT_NS, halted).await;
        halted.map_err(|_| log_failed(&format!("core {core} does not halt in time")))
    }

    /// How a component of another core ended last, by what its monitor says and by what was heard
    /// before. If that monitor does not answer, and the component lived as far as is known, nobody
    /// knows.
    pub(crate) fn last_end_elsewhere(
        &self,
        core: u32,
        name: &str,
        asked: Result<Option<(u64, Death)>, MonitorError>,
    ) -> Result<Option<(u64, Death)>, MonitorError> {
        let known = self.ends.borrow().get(name).copied();
        let is_it = |(domain, it): (&DomainId, &Dead)| (*domain >> 48) as u32 == core && it.name == name;
        match asked {
            Ok(said) => Ok(said.into_iter().chain(known).max_by_key(|(generation, _)| *generation)),
            Err(_) if known.is_some() && !self.elsewhere.borrow().iter().any(is_it) => Ok(known),
            Err(error) => Err(error),
        }
    }
}

/// Waits until a core that was told to run greets, and takes its link. One that does not come up is
/// given up, halted: it could come up later, and its claim would refuse the next start.
async fn bring_up(
    core: u32,
    greets: impl Future<Output = Result<(), ()>>,
    connect: impl FnOnce() -> Result<(), Error>,
    give_up: impl Future<Output = Result<(), MonitorError>>,
) -> Result<(), MonitorError> {
    let failed = match greets.await {
        Ok(()) => match connect() {
            Ok(()) => return Ok(()),
            Err(error) => format!("core {core} has no link and is halted: {}", error.name()),
        },
        Err(()) => format!("core {core} does not come up and is halted; try again"),
    };
    let failed = log_failed(&failed);
    give_up.await?;
    Err(failed)
}

/// What there is to do with a core whose monitor is no use any more.
trait LostCore {
    /// Fails calls that wait for its monitor's answer, and takes no more events from it.
    fn close(&self);
    /// Halts it, whatever runs there.
    async fn halt(&self) -> Result<(), MonitorError>;
    /// Has every other core close its channels with it.
    async fn discard(&self);
    /// Tells clients that it is lost, and that what was there died.
    fn tell(&self);
    /// Gives back its link and runs it again, however long that takes.
    async fn run_again(self);
}

/// A core is lost. Clients are told last: until then nobody may take what was there for ended, nor
/// for never begun. A core that does not halt is told of too, and not run again: what runs there
/// still uses its memory.
async fn lose(core: u32, gone: impl LostCore) {
    gone.close();
    let is_halted = gone.halt().await;
    gone.discard().await;
    gone.tell();
    match is_halted {
        Ok(()) => gone.run_again().await,
        Err(error) => runtime::log!("core {core} does not halt and stays lost: {error:?}"),
    }
}

/// A lost core and all that core 0's monitor has of it.
struct Gone<M> {
    service: Rc<Service<M>>,
    remote: RemoteMonitor,
    link: Rc<Link>,
}

impl<M: Machine + 'static> LostCore for Gone<M> {
    fn close(&self) {
        runtime::abort(self.remote.events);
        self.remote.client.channel().close();
    }

    async fn halt(&self) -> Result<(), MonitorError> {
        self.service.halt_link(&self.link).await
    }

    async fn discard(&self) {
        let (service, core) = (&self.service, self.link.core());
        service.registry.borrow_mut().discard_core(core);
        let others: Vec<u32> = service.remote_monitors.borrow().keys().copied().collect();
        for other in others {
            // One that does not answer is lost itself.
            let _ = service.remote_core(other, |monitor| monitor.discard_core(other, core)).await;
        }
    }

    fn tell(&self) {
        let (service, core) = (&self.service, self.link.core());
        let is_there = |domain: &DomainId| (*domain >> 48) as u32 == core;
        let dead: Vec<Dead> =
            service.elsewhere.borrow_mut().extract_if(.., |domain, _| is_there(domain)).map(|(_, dead)| dead).collect();
        service.tell(|listener| listener.core_lost(core));
        for one in dead {
            runtime::log!("core {core}: {} is lost with it", one.name);
            service.tell_death(&one);
        }
    }

    async fn run_again(self) {
        let Gone { service, remote, link } = self;
        let core = link.core();
        drop(remote);
        link.discard();
        run_at_last(&service.lost, core, || service.change_core(core, true)).await;
        service.offer_again(core).await;
    }
}

/// Has a lost core run, again and again until it does; before each time waits as `lost` says.
async fn run_at_last<F>(lost: &RefCell<LostCores>, core: u32, run: impl Fn() -> F)
where
    F: Future<Output = Result<(), MonitorError>>,
{
    loop {
        let wait_ns = lost.borrow_mut().wait_ns(core, now_ns());
        runtime::sleep(wait_ns).await;
        match run().await {
            Ok(()) => return runtime::log!("core {core} runs again"),
            Err(error) => runtime::log!("core {core} does not run again: {error:?}"),
        }
    }
}

/// Looks again at each notification of `badge` until it is so.
async fn until(badge: u64, is_so: impl Fn() -> bool) -> Result<(), ()> {
    let change = async {
        while !is_so() {
            runtime::notified(badge).await;
        }
    };
    runtime::timeout(CHANGE_LIMIT_NS, change).await.map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::wire;
    use crate::service::tests::played::{CORES, Far, OF_FAR, World, denied, on, plain};
    use alloc::borrow::ToOwned;
    use alloc::vec;
    use core::cell::Cell;

    const CORE: u32 = 1;
    const MS: u64 = 1_000_000;

    /// Loses the core so long after it came up, and has it run again; `refused` times it does not.
    /// Gives when it was tried, in milliseconds since it was lost, to 10.
    async fn lose(lost: &RefCell<LostCores>, served_ns: u64, refused: usize) -> Vec<u64> {
        lost.borrow_mut().up(CORE, now_ns());
        runtime::sleep(served_ns).await;
        lost.borrow_mut().lost(CORE, now_ns());
        let (lost_ns, tries) = (now_ns(), RefCell::new(Vec::new()));
        run_at_last(lost, CORE, async || {
            tries.borrow_mut().push((now_ns() - lost_ns + 2 * MS) / (10 * MS) * 10);
            if tries.borrow().len() > refused { Ok(()) } else { Err(MonitorError::Failed) }
        })
        .await;
        tries.into_inner()
    }

    /// Its programs wait for it, so nothing is lost by trying at once, and much by trying for ever.
    #[test]
    fn a_lost_core_is_run_at_once_and_ever_later_while_it_does_not_come_up() {
        runtime::testing::run(async {
            let lost = RefCell::default();
            assert_eq!(lose(&lost, 1_000 * MS, 0).await, [0]);
            assert_eq!(lose(&lost, 1_000 * MS, 5).await, [0, 10, 30, 70, 150, 310]);
            assert_eq!(lose(&lost, 1_000 * MS, 0).await, [0], "it served");
        });
    }

    const OTHER_CORES: DomainId = 2 << 48 | 5;

    /// A machine whose cores 1 and 2 are up and have links.
    fn world() -> (World, [Rc<Far>; 2]) {
        let world = World::new();
        let fars = [1, 2].map(|core| {
            world.service.links.borrow_mut().insert(core, Rc::new(crate::link::tests::played(core)));
            world.up(core)
        });
        (world, fars)
    }

    fn is_there(world: &World, core: u32) -> [bool; 2] {
        [world.service.remote_monitors.borrow().contains_key(&core), world.service.links.borrow().contains_key(&core)]
    }

    /// All that has come.
    async fn events(world: &World) -> Vec<MonitorEvent> {
        let mut all = Vec::new();
        while let Ok(event) = runtime::timeout(MS, world.client.next_event()).await {
            all.push(event);
        }
        all
    }

    #[test]
    fn a_core_whose_monitor_does_not_answer_is_lost_with_all_that_was_there() {
        let (_, lines) = runtime::testing::logged(async {
            let (world, [far, other]) = world();
            let (service, client) = (&world.service, &world.client);
            client.open(0, wire(1, 1, 0), None).await.unwrap();
            client.create(1, plain("far")).await.unwrap();
            let elsewhere = Dead::of_core(OTHER_CORES, "other".into(), 1, false);
            service.elsewhere.borrow_mut().insert(OTHER_CORES, elsewhere);
            far.hangs.set(true);
            let begun_ns = now_ns();
            let waits = service.clone();
            let earlier = runtime::spawn(async move { _ = waits.remote_core(1, |monitor| monitor.core_time(1)).await });
            runtime::sleep(MS).await;
            assert_eq!(client.core_time(1).await, denied(MonitorError::NoCore), "who asked later is told at once");
            assert!(now_ns() - begun_ns >= 20_000 * MS);
            runtime::abort(earlier);
            runtime::sleep(MS).await;
            let told = events(&world).await;
            let [MonitorEvent::CoreLost { core: 1 }, MonitorEvent::Died { name, death, .. }] = &told[..] else {
                panic!("{told:?}")
            };
            assert_eq!((name.as_str(), death.domain, death.status), ("far", OF_FAR, 137));
            assert_eq!(other.take(), ["discard_core 2 1"]);
            assert!(world.machine(|machine| machine.held.is_empty()), "its channels are closed");
            assert_eq!(Vec::from_iter(service.elsewhere.borrow().keys().copied()), [OTHER_CORES]);
            assert_eq!((is_there(&world, 1), is_there(&world, 2)), ([false; 2], [true; 2]));
            assert_eq!(client.core_time(1).await, denied(MonitorError::NoCore));
            assert!(client.core_time(2).await.is_ok());
        });
        let expected = [
            "core 1: its monitor does not answer for 20 s",
            "core 1 does not halt: NotFound",
            "core 1: far is lost with it",
            "core 1 does not halt and stays lost: Failed",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn one_that_asks_and_is_not_answered_is_told_that_the_core_is_away() {
        runtime::testing::run(async {
            let (world, [far, _]) = world();
            far.hangs.set(true);
            assert_eq!(world.client.core_time(1).await, denied(MonitorError::Away));
        });
    }

    #[test]
    fn a_monitor_that_breaks_the_contract_is_lost_and_one_of_an_earlier_run_changes_nothing() {
        runtime::testing::run(async {
            let (world, [..]) = world();
            let service = &world.service;
            let of = |core: u32| service.remote_monitors.borrow()[&core].client.clone();
            let earlier = of(1);
            world.up(1);
            service.is_lost(1, &earlier);
            service.is_lost(2, &of(1));
            runtime::sleep(MS).await;
            assert_eq!((is_there(&world, 1), is_there(&world, 2)), ([true; 2], [true; 2]));
            of(1).channel().close();
            runtime::sleep(MS).await;
            assert_eq!((is_there(&world, 1), is_there(&world, 2)), ([false; 2], [true; 2]));
            assert!(matches!(events(&world).await[..], [MonitorEvent::CoreLost { core: 1 }]));
        });
    }

    #[test]
    fn a_core_that_runs_is_not_lost_when_another_changes() {
        runtime::testing::run(async {
            let (world, _) = world();
            runtime::spawn(world.service.clone().watch_cores());
            executor::post(CORE_CHANGED);
            runtime::sleep(10 * MS).await;
            assert_eq!((is_there(&world, 1), is_there(&world, 2)), ([true; 2], [true; 2]));
        });
    }

    #[test]
    fn cores_are_changed_one_at_a_time_and_only_as_they_can_be() {
        runtime::testing::run(async {
            let (world, [far, _]) = world();
            let (service, change) = (&world.service, |core, run| world.client.change_core(core, run));
            for core in [0, CORES, CORES + 1] {
                for run in [true, false] {
                    assert_eq!(change(core, run).await, denied(MonitorError::NoCore), "{core}");
                }
            }
            service.changing.set(true);
            assert_eq!(change(1, true).await, denied(MonitorError::Busy));
            service.changing.set(false);
            assert_eq!((change(1, true).await, change(3, false).await), (Ok(()), Ok(())), "it is so already");
            assert!(far.take().is_empty());
            far.refuses.set(Some(MonitorError::Busy));
            assert_eq!(change(1, false).await, denied(MonitorError::Busy), "something is there");
            assert_eq!((far.take(), is_there(&world, 1)), (vec!["leave 1".to_owned()], [true; 2]));
            // A host has no core to start or halt, and each may be tried again.
            for _ in 0..2 {
                assert_eq!(change(3, true).await, denied(MonitorError::Failed));
            }
            far.refuses.set(None);
            assert_eq!(change(1, false).await, denied(MonitorError::Failed));
            assert_eq!(is_there(&world, 1), [false, true], "nobody makes anything there");
            service.links.borrow_mut().remove(&2);
            assert_eq!(change(2, false).await, denied(MonitorError::NoCore));
            // While the system boots nobody changes them.
            let booting = World::client(&on(0, CORES));
            assert_eq!(booting.change_core(1, true).await, denied(MonitorError::Busy));
        });
    }

    #[test]
    fn a_core_without_a_way_to_ring_it_is_not_up() {
        runtime::testing::run(async {
            let service = on(0, CORES);
            let link = crate::link::tests::played(1);
            let [memory] = channel::loopback_memory(channel::Layout::default());
            assert_eq!(service.link_up(&link, memory), Err(Error::BadCall));
            assert!(service.remote_monitors.borrow().is_empty());
        });
    }

    #[test]
    fn a_lost_core_that_halted_gives_back_its_link_and_is_run_until_it_comes_up() {
        let (_, lines) = runtime::testing::logged(async {
            let (world, _) = world();
            let service = world.service.clone();
            let remote = service.remote_monitors.borrow_mut().remove(&1).unwrap();
            let link = service.links.borrow_mut().remove(&1).unwrap();
            let gone = Gone { service, remote, link };
            assert!(runtime::timeout(100 * MS, gone.run_again()).await.is_err());
        });
        let tries = lines.iter().filter(|line| *line == "core 1 does not run again: Failed").count();
        assert!((3..=5).contains(&tries), "{lines:?}");
    }

    #[test]
    fn monitors_are_beaten_while_there_are_others() {
        runtime::testing::run(async {
            let beats = async |cores| runtime::timeout(9_000 * MS, on(0, cores).beat_monitors()).await.is_err();
            assert_eq!((beats(1).await, beats(2).await), (false, true));
        });
    }

    #[test]
    fn what_a_notification_may_tell_is_looked_at_then_and_not_for_ever() {
        runtime::testing::run(async {
            let (so, begun_ns) = (core::cell::Cell::new(false), now_ns());
            assert_eq!(until(GREETED, || false).await, Err(()));
            assert!((5_000 * MS..5_100 * MS).contains(&(now_ns() - begun_ns)));
            assert_eq!(until(GREETED, || true).await, Ok(()));
            let waits = until(GREETED, || so.get());
            let mut waits = core::pin::pin!(waits);
            assert!(runtime::timeout(MS, waits.as_mut()).await.is_err());
            so.set(true);
            executor::post(GREETED);
            let begun_ns = now_ns();
            assert_eq!(waits.await, Ok(()));
            assert!(now_ns() - begun_ns < MS);
        });
    }

    #[test]
    fn a_core_that_does_not_come_up_is_halted_so_that_it_may_be_tried_again() {
        runtime::testing::run(async {
            let failed = Err(MonitorError::Failed);
            for (greets, connects, halts, comes_up, expected) in [
                (Ok(()), Ok(()), Ok(()), Ok(()), [true, false]),
                (Ok(()), Err(Error::NoMemory), Ok(()), failed, [true, true]),
                (Err(()), Ok(()), Ok(()), failed, [false, true]),
                (Err(()), Ok(()), Err(MonitorError::NoCore), Err(MonitorError::NoCore), [false, true]),
            ] {
                let [is_asked, is_halted] = [Cell::new(false), Cell::new(false)];
                let connect = || {
                    is_asked.set(true);
                    connects
                };
                let give_up = async {
                    is_halted.set(true);
                    halts
                };
                assert_eq!(bring_up(CORE, async { greets }, connect, give_up).await, comes_up);
                assert_eq!([is_asked.get(), is_halted.get()], expected);
            }
        });
    }

    /// A lost core that writes down what is done with it.
    struct Played<'t> {
        halts: Result<(), MonitorError>,
        done: &'t RefCell<Vec<&'static str>>,
    }

    impl LostCore for Played<'_> {
        fn close(&self) {
            self.done.borrow_mut().push("closed");
        }
        async fn halt(&self) -> Result<(), MonitorError> {
            runtime::sleep(MS).await;
            self.done.borrow_mut().push("halted");
            self.halts
        }
        async fn discard(&self) {
            runtime::sleep(MS).await;
            self.done.borrow_mut().push("discarded");
        }
        fn tell(&self) {
            self.done.borrow_mut().push("told");
        }
        async fn run_again(self) {
            self.done.borrow_mut().push("run");
        }
    }

    #[test]
    fn a_lost_core_is_forgotten_then_told_of_and_run_again_only_if_it_halted() {
        runtime::testing::run(async {
            for (halts, runs) in [(Ok(()), true), (Err(MonitorError::Failed), false)] {
                let done = RefCell::default();
                super::lose(CORE, Played { halts, done: &done }).await;
                let expected = ["closed", "halted", "discarded", "told", "run"];
                assert_eq!(done.into_inner(), expected[..4 + usize::from(runs)]);
            }
        });
    }

    /// One that is lost as soon as it is up waits too: its log would be all that anybody reads.
    #[test]
    fn a_core_that_is_lost_again_and_again_waits_ever_longer() {
        runtime::testing::run(async {
            let lost = RefCell::default();
            let mut waits = Vec::new();
            for _ in 0..12 {
                waits.extend(lose(&lost, MS, 0).await);
            }
            assert_eq!(waits, [0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 400, 800]);
        });
    }
}
