//! The ledgers of domains: who paid for the time that each of them ran, and that no time is lost.

use super::World;
use super::portals::Party;
use super::time::refusal;
use crate::arch::context::Event;
use crate::hardware;
use crate::objects::{Domain, Ptr};
use crate::scheduler::ledger::{ROWS, Row};
use abi::{Call, Error, Handle};

/// A domain's rows.
pub(super) fn rows(domain: Ptr<Domain>) -> Vec<Row> {
    (0..).map_while(|number| domain.ledger.row(number)).collect()
}

impl Party {
    fn id(&self) -> u64 {
        self.domain.header().id()
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.domain)
    }

    /// What `payer` paid for it.
    fn paid_by(&self, payer: &Party) -> u64 {
        let own = self.rows().into_iter().find(|row| row.payer == payer.time.header().id());
        own.map_or(0, |row| {
            assert_eq!(row.client, payer.id(), "a row names the client too");
            row.paid_ns
        })
    }
}

#[test]
fn a_callees_ledger_says_who_paid() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let server = world.party(0);
    world.answer(&server, 10);
    let front = world.party(1);
    world.answer(&front, 20);
    let client = world.party(5);
    world.connect(&front, &server);
    world.connect(&client, &front);
    for turn in 1..=3 {
        world.ask(&client, 100 * turn);
        world.ask(&front, 200 * turn);
        world.answer(&server, 400 * turn);
        world.answer(&front, 800 * turn);
        assert!(world.runs(&client));
    }
    assert_eq!(world.used_ns([&server, &front, &client]), [10, 20, 9000]);
    assert_eq!([&server, &front, &client].map(|party| party.paid_by(&client)), [2400, 6000, 600]);
    assert_eq!((server.paid_by(&server), front.paid_by(&front), server.paid_by(&front)), (10, 20, 0));
    world.end([server, front, client]);
}

#[test]
fn rows_idle_time_and_the_kernels_are_all_the_time_there_was() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    // As if it had booted.
    hardware::set_clock(5);
    world.kernel.step(Event::Timer);
    hardware::set_clock(105);
    let server = world.party(0);
    world.answer(&server, 10);
    hardware::set_clock(hardware::now_ns() + 40);
    let client = world.party(5);
    world.connect(&client, &server);
    world.ask(&client, 100);
    world.answer(&server, 300);
    world.kernel.update_accounting();
    let rows = [&server, &client].map(|party| party.rows().iter().map(|row| row.paid_ns).sum::<u64>());
    assert_eq!(rows, [310, 100]);
    assert_eq!(rows, [&server, &client].map(|party| party.domain.cpu_ns.get()), "nothing is in no row");
    let (idle_ns, kernel_ns) = (world.kernel.counters.idle_ns.0, world.kernel.counters.kernel_ns.0);
    assert_eq!((idle_ns, kernel_ns), (140, 5), "before the first event the kernel booted");
    assert_eq!(rows.iter().sum::<u64>() + idle_ns + kernel_ns, hardware::now_ns());
    world.end([server, client]);
}

#[test]
fn a_payer_without_a_row_gets_that_of_who_paid_least() {
    hardware::set_clock(0);
    let mut world = World::new(2000);
    let parties: [Party; ROWS + 3] = core::array::from_fn(|_| {
        let party = world.party(1);
        world.answer(&party, 0);
        party
    });
    let (server, clients) = parties.split_first().unwrap();
    for client in &clients[..ROWS] {
        server.domain.ledger.add(client.time, 100);
    }
    assert_eq!(server.rows().len(), ROWS);
    server.domain.ledger.add(clients[0].time, 11);
    server.domain.ledger.add(clients[3].time, 1);
    // The second paid least, and has the first place of those that paid as much; then who came
    // for it.
    server.domain.ledger.add(clients[ROWS].time, 7);
    server.domain.ledger.add(clients[ROWS + 1].time, 8);
    let paid = |client: &Party| server.paid_by(client);
    assert_eq!(
        [0, 1, 2, 3, ROWS - 1, ROWS, ROWS + 1].map(|index| paid(&clients[index])),
        [111, 0, 100, 101, 100, 0, 8]
    );
    let ids: Vec<u64> = server.rows().iter().map(|row| row.payer).collect();
    let order = [0, ROWS + 1].into_iter().chain(2..ROWS);
    assert_eq!(ids, order.map(|index| clients[index].time.header().id()).collect::<Vec<_>>(), "they keep their places");
    world.end(parties);
}

#[test]
fn rows_are_told_by_a_call_and_outlive_their_payer() {
    hardware::set_clock(0);
    let mut world = World::new(512);
    let domain = world.monitor();
    let time = super::time::context(domain).schedule.get().unwrap();
    world.kernel.decide();
    hardware::set_clock(700);
    let own = Handle::SELF_DOMAIN.0;
    let read = |world: &mut World, number| {
        let (status, payer) = world.runner_calls(Call::LedgerRead, [own, number, 0, 0, 0, 0]);
        super::time::context(domain).with_registers(|r| (status, [payer, r.rsi, r.rdx]))
    };
    let (id, home) = (time.header().id(), domain.header().id());
    world.kernel.update_accounting();
    assert_eq!(read(&mut world, 0), (0, [id, home, 700]));
    for number in [1, ROWS as u64, u64::MAX] {
        assert_eq!(read(&mut world, number).0, refusal(Error::NotFound));
    }
    time.context.set(None);
    let stranger = world.party(0);
    stranger.domain.ledger.add(time, 5);
    assert_eq!(
        stranger.rows().iter().map(|row| [row.payer, row.client, row.paid_ns]).collect::<Vec<_>>(),
        [[id, 0, 5]]
    );
}
