//! The server dies after any single thing that it does outside of itself, and the next one after
//! any of its own: what was said to last is there, what was open gives EIO, nothing that is gone
//! for good comes back, and e2fsck finds nothing.
//!
//! A *step* is a request that the disk's server accepts, its end, or an answer that a client takes.
//! All else that the server does is in its own memory, or in memory that the next one does not
//! believe: the region of the disk's data, whose blocks are moved about between two lives, and the
//! bulk areas of clients, which are overwritten. Of a dead server's requests the device carries out
//! those that it had, before the disk answers the next one's `attach` (decision 86). With the death
//! the power may go, too: then of what was not flushed any part is left.

mod client;
mod disk;
mod model;
mod world;

use std::cell::{Cell, RefCell};

use client::Client;
use disk::{Disk, Judge, Random};
use model::{Model, Op};
use world::{Left, World};

use super::*;

/// Machines with several clients, unless `PELAGO_VOLUME_DEATHS` says how many. If those are more,
/// all else is done more often, too.
const ROUNDS: u64 = 25;
const FOLDERS: [&str; 3] = ["0", "1", "2"];
/// Numbers of files of different clients.
const OBJECTS: u32 = 10_000;

/// What a program does with files that shall last.
const SCRIPT: [Op; 42] = [
    Op::Open("a"),
    Op::Write("a", 0, 10_000),
    Op::Sync("a"),
    Op::Write("a", 4000, 300),
    Op::Write("b", 0, 5000),
    Op::SyncFolder(""),
    Op::DataSync("b"),
    Op::Rename("b", "c"),
    Op::MakeFolder("d"),
    Op::SyncFolder(""),
    Op::WriteSynced("d/a", 0, 6000),
    Op::WriteSynced("d/a", 6000, 600),
    Op::Link("a", "d/b"),
    Op::MakeLink("l", "a/b"),
    Op::SyncAll,
    Op::Write("a", 20_000, 4096),
    Op::Remove("c"),
    Op::UseRemoved,
    Op::SyncFolder(""),
    Op::CloseRemoved,
    Op::Truncate("a", 5000),
    Op::Sync("a"),
    Op::Write("a", 9000, 100),
    Op::Open("e"),
    Op::Write("e", 0, 40_000),
    Op::Rename("e", "a"),
    Op::SyncFolder(""),
    Op::UseRemoved,
    Op::Read("d/b"),
    Op::Remove("d/b"),
    Op::SyncFolder("d"),
    Op::Read("d/a"),
    Op::Truncate("a", 0),
    Op::Write("a", 100, 8000),
    Op::DataSync("a"),
    Op::Remove("d/a"),
    Op::CloseRemoved,
    Op::RemoveFolder("d"),
    Op::SyncAll,
    Op::Remove("l"),
    Op::WriteSynced("f", 0, 100),
    Op::Pause(6000),
];

/// What becomes of the machine with the server's last death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    Stays,
    Goes,
}

/// A machine: what happens comes from the seed.
struct Machine<'a> {
    base: &'a Rc<Vec<u8>>,
    seed: u64,
    /// Servers die after so many steps, one after the other; the last one lives.
    deaths: &'a [u64],
    left: Left,
    power: Power,
    scripts: Vec<Vec<Op>>,
}

/// What became of it.
struct Outcome {
    /// Deaths that did not come.
    deaths_left: usize,
    disk: Disk,
    models: Vec<Rc<RefCell<Model>>>,
}

impl Machine<'_> {
    /// Runs the programs to their end, or until the power goes.
    fn run(&self) -> Outcome {
        let mut random = Random(self.seed);
        let models: Vec<_> =
            (0..self.scripts.len() as u32).map(|number| Rc::new(RefCell::new(Model::new(number * OBJECTS)))).collect();
        runtime::testing::run_and_end(async {
            let (world, storage) = World::new(Disk::new(self.base.clone()), random.next(), self.deaths, self.left);
            let left = Rc::new(Cell::new(self.scripts.len() + 1));
            for (number, script) in self.scripts.iter().enumerate() {
                let client = Client::new(world.clone(), FOLDERS[number], models[number].clone());
                runtime::spawn(work(client, script.clone(), world.clone(), left.clone()));
            }
            runtime::spawn(close_last(storage, world.clone(), left.clone(), models.clone()));
            loop {
                world.begin();
                world.news.until(|| (left.get() == 0 || !world.is_alive()).then_some(())).await;
                let is_over = self.power == Power::Goes && world.deaths_left() == 0;
                if world.is_alive() || is_over {
                    break;
                }
                runtime::sleep(random.below(3_000_000) as u64).await;
            }
            let disk = match world.is_alive() {
                true => world.disk.borrow().clone(),
                false => world.cut(),
            };
            Outcome { deaths_left: world.deaths_left(), disk, models: models.clone() }
        })
    }

    /// Runs it, and looks at what is left: by another server, and by e2fsck when that has ended.
    fn judge(&self, judge: Option<&mut Judge>) -> Outcome {
        let mut outcome = self.run();
        let disk = runtime::testing::run_and_end(async {
            let (world, storage) = World::new(outcome.disk.clone(), self.seed, &[], Left::None);
            let clients: Vec<_> = (0..outcome.models.len())
                .map(|number| Client::new(world.clone(), FOLDERS[number], outcome.models[number].clone()))
                .collect();
            world.begin();
            for client in &clients {
                client.check().await;
            }
            storage.close().await.unwrap();
            world.disk.borrow().clone()
        });
        assert!(disk.lasts_all(), "it was closed");
        if let Some(judge) = judge {
            judge.check(&disk).unwrap_or_else(|told| panic!("{told}"));
        }
        outcome.disk = disk;
        outcome
    }
}

/// Does all of a script.
async fn work(mut client: Client, script: Vec<Op>, world: Rc<World>, left: Rc<Cell<usize>>) {
    for op in script {
        client.run(op).await;
    }
    client.settle().await;
    left.set(left.get() - 1);
    world.news.changed();
}

/// Ends the volume when all scripts are done.
async fn close_last(storage: StorageClient, world: Rc<World>, left: Rc<Cell<usize>>, models: Vec<Rc<RefCell<Model>>>) {
    world.news.until(|| (left.get() == 1).then_some(())).await;
    let life = world.life();
    let mut closed = storage.close().await;
    // Another one does not know what was lost with this one.
    if closed.is_ok() {
        models.iter().for_each(|model| model.borrow_mut().acknowledge_all(life));
    }
    while closed == Err(CallError::PeerRestarted) {
        assert!(life < world.life(), "it lives");
        closed = storage.close().await;
    }
    closed.unwrap();
    left.set(0);
    world.news.changed();
}

/// An empty volume with the folders of clients, or `None`, with a line, where nobody can make one.
fn base() -> Option<Rc<Vec<u8>>> {
    made(16, |tree| FOLDERS.iter().for_each(|name| std::fs::create_dir(tree.join(name)).unwrap())).map(Rc::new)
}

fn rounds() -> u64 {
    std::env::var("PELAGO_VOLUME_DEATHS").map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

/// Says of what machine something is wrong.
struct Told(String);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was {}", self.0);
        }
    }
}

fn judged(machine: &Machine<'_>, judge: Option<&mut Judge>) -> Outcome {
    let Machine { seed, deaths, left, power, .. } = machine;
    let _told = Told(format!("seed {seed:#x}, deaths after {deaths:?} steps, {left:?} left, power {power:?}"));
    machine.judge(judge)
}

/// Each death, without and with the power's end, and a second one while the next server begins.
#[test]
fn a_server_may_die_after_any_step() {
    const SEED: u64 = 0x5eed_0000_0000_0025;
    let Some(base) = base() else { return };
    let mut judge = Judge::new(&base);
    let (is_long, mut machines) = (rounds() > ROUNDS, 0);
    for step in 1.. {
        let second = [step, 1 + step * 7 % 40];
        let mut kinds: Vec<(&[u64], Power)> = vec![
            (&second[..1], Power::Stays),
            (&second[..1], Power::Goes),
            (&second, if step % 2 == 0 { Power::Stays } else { Power::Goes }),
        ];
        if is_long {
            kinds.extend([(&second[..], Power::Stays), (&second[..], Power::Goes)]);
        }
        let mut is_over = false;
        for (kind, (deaths, power)) in kinds.into_iter().enumerate() {
            let left = [Left::Some, Left::All, Left::None][(step as usize + kind) % 3];
            let scripts = vec![SCRIPT.to_vec()];
            let machine = Machine { base: &base, seed: SEED + step, deaths, left, power, scripts };
            let is_checked = is_long || step as usize % 4 == kind;
            let outcome = judged(&machine, is_checked.then_some(&mut judge));
            machines += 1;
            is_over |= outcome.deaths_left == deaths.len();
        }
        if is_over {
            eprintln!("{step} steps, {machines} machines");
            assert!(step > 240, "the script takes {step} steps");
            break;
        }
    }
}

/// Several clients at once, which do anything, and servers that die one after the other.
#[test]
fn servers_die_one_after_the_other_under_several_clients() {
    const SEED: u64 = 0x5eed_0000_0000_0125;
    let Some(base) = base() else { return };
    let mut judge = Judge::new(&base);
    let (rounds, mut deaths_in_all) = (rounds(), 0);
    for round in 0..rounds {
        let mut random = Random(SEED + round);
        let scripts = (0..3).map(|_| (0..60).map(|_| model::any(&mut random)).collect()).collect();
        let deaths: Vec<u64> = (0..4)
            .map(|_| {
                let most = if random.one_in(2) { 40 } else { 400 };
                1 + random.below(most) as u64
            })
            .collect();
        let left = [Left::Some, Left::All, Left::None][random.below(3)];
        let power = if random.one_in(2) { Power::Goes } else { Power::Stays };
        let machine = Machine { base: &base, seed: SEED + round, deaths: &deaths, left, power, scripts };
        deaths_in_all += deaths.len() as u64 - judged(&machine, Some(&mut judge)).deaths_left as u64;
    }
    eprintln!("{rounds} machines, {deaths_in_all} deaths");
    assert!(deaths_in_all >= rounds * 3, "{deaths_in_all} deaths");
}
