//! Clients that know what stands on the disk, and a world in which drivers die.

use super::{BlockDriver, CLIENTS, Machine, NAME, number, random, request};
use packet::Memory;
use std::collections::BTreeMap;
use virtio_blk::{Answer, Completion, Found, Operation, Request};

/// Few sectors, so that requests are neighbours and come back to the same place.
const PLACES: u64 = 48;

/// What a client waits for.
pub struct Asked {
    pub request: Request,
    /// Of a write: what stands there then; of a flush: what is durable then, by sector.
    pub stamps: Vec<(u64, u64)>,
}

/// A client and the sectors that are its own.
pub struct Client {
    pub number: u8,
    pub first: u64,
    pub next: u64,
    pub asked: BTreeMap<u64, Asked>,
    /// What is known to stand in each sector; `None`: one of several, its writer died.
    pub stands: Vec<Option<u64>>,
    /// This client's life began with that number; until the driver has nothing of an earlier one
    /// it waits.
    pub life: u64,
    pub is_attached: bool,
}

impl Client {
    pub fn new(number: u8) -> Client {
        let first = u64::from(number) * PLACES;
        let stands = vec![Some(0); PLACES as usize];
        Client { number, first, next: 1, asked: BTreeMap::new(), stands, life: 0, is_attached: false }
    }

    /// Sectors of what it waits for.
    fn is_busy(&self, sector: u64, sectors: u32) -> bool {
        let ends = |request: &Request| request.sector < sector + u64::from(sectors) && request.end() > Some(sector);
        self.asked.values().any(|asked| ends(&asked.request))
    }

    pub fn attach(&mut self, driver: &mut BlockDriver) {
        if !self.is_attached {
            driver.abandon(self.number, self.life);
            self.is_attached = !driver.holds(self.number, self.life);
        }
    }

    /// Another one comes in its place; what it was writing is anything.
    pub fn die(&mut self, driver: &mut BlockDriver) {
        let ids: Vec<u64> = self.asked.keys().copied().collect();
        ids.into_iter().for_each(|id| self.discard(id));
        driver.abandon(self.number, u64::MAX);
        (self.life, self.is_attached) = (self.next, false);
    }

    /// What that request was to change is anything.
    fn discard(&mut self, id: u64) {
        if let Some(Asked { request, .. }) = self.asked.remove(&id) {
            let changes = !matches!(request.operation, Operation::Read | Operation::Flush | Operation::Identify);
            let own = request.sector..request.end().unwrap();
            own.filter(|_| changes).for_each(|sector| self.stands[(sector - self.first) as usize] = None);
        }
    }

    pub fn ask(&mut self, machine: &Machine, driver: &mut BlockDriver, chance: &mut u64) {
        let sectors = 1 + (random(chance) % 4) as u32;
        let sector = self.first + random(chance) % (PLACES - u64::from(sectors));
        let kinds = [
            Operation::Write,
            Operation::Write,
            Operation::Write,
            Operation::Read,
            Operation::Read,
            Operation::Flush,
            Operation::Discard,
            Operation::WriteZeroes { may_discard: true },
            Operation::Identify,
        ];
        let operation = kinds[random(chance) as usize % kinds.len()];
        let is_placed = !matches!(operation, Operation::Flush | Operation::Identify);
        let (sector, sectors) = if is_placed { (sector, sectors) } else { (0, 0) };
        if !self.is_attached || self.asked.len() > 40 || is_placed && self.is_busy(sector, sectors) {
            return;
        }
        let id = self.next;
        self.next += 1;
        let request = request(self.number, id, operation, sector, sectors);
        let zeros = operation.has_data() as u64;
        let mut stamps: Vec<(u64, u64)> =
            (sector..sector + u64::from(sectors)).map(|sector| (sector, zeros * (id << 8 | 1))).collect();
        match operation {
            Operation::Write => stamps.iter().for_each(|(place, stamp)| {
                let at = request.offset as usize + (place - sector) as usize * 512;
                machine.data.write(at, &stamp.to_le_bytes().repeat(64)).unwrap();
            }),
            Operation::Read => {
                machine.data.write(request.offset as usize, &vec![0xee; sectors as usize * 512]).unwrap()
            }
            Operation::Flush => {
                let all = (self.first..).zip(&self.stands).filter(|(sector, _)| !self.is_busy(*sector, 1));
                stamps = all.filter_map(|(sector, stamp)| Some((sector, (*stamp)?))).collect();
            }
            _ => {}
        }
        self.asked.insert(id, Asked { request, stamps });
        let accepted = driver.submit(request);
        assert!(accepted.is_ok() || machine.life.is_over(), "{request:?}: {accepted:?}");
    }

    pub fn ask_again(&self, driver: &mut BlockDriver) {
        for asked in self.asked.values() {
            assert_eq!(driver.submit(asked.request), Ok(()));
        }
    }

    pub fn hear(&mut self, machine: &Machine, id: u64, outcome: Answer) {
        let Some(Asked { request, stamps }) = self.asked.remove(&id) else {
            panic!("client {}: {id} is nothing that it waits for", self.number);
        };
        match request.operation {
            Operation::Identify => assert!(matches!(outcome, Answer::Identity(name) if name == *NAME)),
            Operation::Flush => {
                for (sector, stamp) in stamps {
                    let durable = number::<8>(&machine.durable, sector as usize * 512);
                    // Something newer may be, that was written since.
                    let is_newer =
                        self.stands[(sector - self.first) as usize] != Some(stamp) || self.is_busy(sector, 1);
                    assert!(durable == stamp || is_newer, "sector {sector} was flushed and has {durable:#x}");
                }
            }
            Operation::Read => {
                for place in 0..u64::from(request.sectors) {
                    let at = request.offset as usize + place as usize * 512;
                    let found = number::<8>(&machine.data, at);
                    let stands = self.stands[(request.sector + place - self.first) as usize];
                    assert!(
                        stands.is_none_or(|stands| stands == found),
                        "{request:?} gave {found:#x}, not {stands:x?}"
                    );
                }
            }
            Operation::Write | Operation::Discard | Operation::WriteZeroes { .. } => {
                stamps.iter().for_each(|(sector, stamp)| self.stands[(sector - self.first) as usize] = Some(*stamp));
            }
        }
    }

    pub fn check_disk(&self, machine: &Machine) {
        for (sector, stands) in (self.first..).zip(&self.stands) {
            let found = number::<8>(&machine.disk, sector as usize * 512);
            assert!(stands.is_none_or(|stands| stands == found), "sector {sector} has {found:#x}, not {stands:x?}");
        }
    }
}

/// A machine, its clients and its drivers.
pub struct World {
    pub machine: Machine,
    pub clients: Vec<Client>,
    pub lives: Vec<u64>,
    pub begun: usize,
    pub takeovers: usize,
    pub joined: u64,
    pub restarts: u64,
    /// Requests may fail, and the device be taken for broken: somebody wrote into the region.
    pub may_fail: bool,
    /// So many times the device says what cannot be.
    pub lies: u32,
    /// It did, and the driver has not said so.
    has_lied: bool,
    /// Bytes of the ring region that are changed, by this, when the first driver has died.
    pub changes: Vec<(usize, u8)>,
}

impl World {
    /// Whose drivers have so many stores, one after the other.
    pub fn new(lives: &[u64]) -> World {
        let clients = (0..CLIENTS).map(Client::new).collect();
        let (machine, lives) = (Machine::new(), lives.to_vec());
        World {
            machine,
            clients,
            lives,
            begun: 0,
            takeovers: 0,
            joined: 0,
            restarts: 0,
            may_fail: false,
            lies: 0,
            has_lied: false,
            changes: Vec::new(),
        }
    }

    pub fn begin(&mut self) -> BlockDriver {
        loop {
            if self.begun > 0 {
                let mut rings = self.machine.rings.borrow_mut();
                std::mem::take(&mut self.changes).into_iter().for_each(|(at, by)| rings[at] ^= by);
                // Nor is it certain that the device was told of what it is given.
                self.machine.is_notified.set(self.may_fail || self.machine.is_notified.get());
            }
            let next = (!self.lives.is_empty()).then(|| self.lives.remove(0));
            self.machine.life.lasts(next);
            self.begun += 1;
            let started = self.machine.start();
            if self.machine.life.is_over() {
                continue;
            }
            let (mut driver, found) = started.unwrap_or_else(|error| panic!("{error:?}"));
            self.takeovers += usize::from(found == Found::Running);
            for client in &mut self.clients {
                client.attach(&mut driver);
                client.ask_again(&mut driver);
            }
            return driver;
        }
    }

    pub fn hear(&mut self, driver: &mut BlockDriver) {
        for Completion { client, id, outcome } in driver.take_output() {
            let client = &mut self.clients[usize::from(client)];
            match outcome {
                Ok(answer) => client.hear(&self.machine, id, answer),
                Err(_) if self.may_fail => client.discard(id),
                Err(failure) => panic!("{} {id}: {failure:?}", client.number),
            }
        }
    }

    fn look(&mut self, driver: &mut BlockDriver) {
        if driver.look().is_err() {
            let has_lied = std::mem::take(&mut self.has_lied);
            assert!(self.may_fail || has_lied, "the device is taken for broken");
            self.machine.begin();
            let restarted = driver.restart(&mut self.machine.card.clone());
            assert!(restarted.is_ok() || self.machine.life.is_over(), "{restarted:?}");
        }
        if !self.machine.life.is_over() {
            self.hear(driver);
        }
    }

    /// The driver lives until all is done; then each sector has what was said.
    pub fn end(&mut self, driver: &mut BlockDriver) {
        self.machine.life.lasts(None);
        for _ in 0..40 {
            driver.flush();
            self.machine.is_notified.set(self.may_fail || self.machine.is_notified.get());
            self.machine.work();
            self.look(driver);
            self.clients.iter_mut().for_each(|client| client.attach(driver));
        }
        for client in &self.clients {
            assert!(client.asked.is_empty() && client.is_attached, "a client waits for ever");
            client.check_disk(&self.machine);
        }
        assert_eq!(driver.pending(), 0);
    }

    pub fn step(&mut self, driver: &mut BlockDriver, chance: &mut u64) {
        let which = random(chance) as usize;
        match which % 12 {
            0 | 1 => self.machine.take(),
            2 | 3 => {
                let count = self.machine.taken.borrow().len().max(1);
                self.machine.complete(random(chance) as usize % count, None);
            }
            4 => driver.flush(),
            5..9 => {
                let client = which / 12 % self.clients.len();
                self.clients[client].ask(&self.machine, driver, chance);
            }
            9 if self.lies > 0 && (which / 12).is_multiple_of(4) && self.machine.queue.get().is_some() => {
                self.machine.used(u32::MAX, 1);
                (self.lies, self.has_lied) = (self.lies - 1, true);
            }
            9 => driver.served(),
            10 if (which / 12).is_multiple_of(16) => {
                let client = which / 192 % self.clients.len();
                self.clients[client].die(driver);
            }
            10 => self.clients.iter_mut().for_each(|client| client.attach(driver)),
            _ => {
                self.look(driver);
            }
        }
        if self.machine.life.is_over() {
            self.joined += driver.counters().joined;
            self.restarts += driver.counters().restarts;
            *driver = self.begin();
        }
    }
}
