//! The same by calls (`lib/block-calls`), of a disk's server or of one before it: batches, what is
//! refused, what a request goes through, and rounds of patterns, on when the server ends; what one
//! transport wrote the other reads. Named `sleeper` it asks for all that it may, and never picks
//! up. As a program of several cores each of its dispatchers has sectors of its own, and says where
//! its requests were submitted and given to the device. Told to trace, it reads, and says how long
//! its calls took by the clock.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use abi::Error;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use block_calls::{BATCH_MAX, CallFailure, Called, Ended, Operation, Phases, Request, SLOTS, Session, slots};
use contracts::blocks::{BlocksClient, BlocksError, Disk, Extent};
use core::cell::{Cell, RefCell};
use disk_check_core::{SECTOR_BYTES, pieces, word};
use runtime::{Bulk, Caller, Start, Waiter};

/// Sectors that are written: 2 MiB, or the disk.
const SECTORS: u64 = 4096;
/// Rounds, unless it goes on for ever.
const ROUNDS: u32 = 4;
/// Rounds of each of several cores, so that some are under way when the server ends.
const ROUNDS_OF_CORES: u32 = 8;
/// Reads of which it tells what they went through.
const TRACED: usize = 100;
const FOREVER: &str = "disk-calls.forever";
const READS: &str = "disk-calls.reads";
/// Behind a component's name: `NAME.traced=COUNT`.
const TRACE: &str = ".traced=";
/// What the first writes when it is done, to the end of the data region, where no traced read goes.
const TRACED_BY_ONE: [u8; 8] = *b"is done\n";
/// How often the second looks there.
const LOOK_NS: u64 = 10_000_000;
/// The name of the one that never picks up.
const SLEEPER: &str = "sleeper";
/// Badge bit of the semaphore.
const RAISED: u64 = 1 << 60;
/// Badge bit of the one that calls on time which is read.
const BILLED: u64 = 1 << 61;
/// The priority of the description, in classes.
const PRIORITY: u64 = 2;
/// Every call has a deadline. One that a busy host lets pass is made again.
const CALL_NS: u64 = 1_000_000_000;
const AGAIN_NS: u64 = 1_000_000;
/// Sectors and tries of what is looked at in the bill: 128 KiB.
const BILLED_SECTORS: u32 = 256;
const BILLS: u32 = 8;
/// What stands in the data region before a read.
const NOTHING: u8 = 0xee;
const OUT: &str = "the data region is too small";
const BLOCK_SECTORS: u32 = 8;
/// A device has so long for a batch, and a host that is busy so many tries, each longer by that.
const BATCH_NS: u64 = 20_000_000;
const BATCHES_MAX: u64 = 16;

/// How a round's requests go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Calls,
    Ring,
}

/// How a round is written, and how it is read back.
const TRANSPORTS: [[Transport; 2]; ROUNDS as usize] = [
    [Transport::Calls, Transport::Calls],
    [Transport::Ring, Transport::Calls],
    [Transport::Calls, Transport::Ring],
    [Transport::Calls, Transport::Calls],
];

struct Checker {
    blocks: BlocksClient,
    session: Session,
    data: Bulk,
    disk: Disk,
    first: u64,
    /// Number of the next request.
    next: Cell<u64>,
    calls: Cell<u64>,
    /// How often the server was found ended.
    deaths: Cell<u64>,
    /// How often a call came to its deadline.
    late: Cell<u64>,
    /// The longest call that was answered, and all of them.
    longest_ns: Cell<u64>,
    in_calls_ns: Cell<u64>,
    /// The sectors that it writes.
    sectors: core::ops::Range<u64>,
    /// Our core.
    core: u32,
    /// Requests that were submitted on it, and the cores that gave them to the device.
    submitted: Cell<u64>,
    handlers: RefCell<BTreeSet<u32>>,
}

impl Checker {
    fn request(&self, operation: Operation, extent: Extent, offset: u32) -> Request {
        Request { operation, number: self.next.replace(self.next.get() + 1), extent, offset }
    }

    /// Bytes of a slot's place in the data region.
    fn place_bytes(&self) -> u32 {
        (self.disk.data_bytes / SLOTS as u32 / self.disk.block_bytes * self.disk.block_bytes)
            .min(self.disk.sectors_max * SECTOR_BYTES as u32)
    }

    fn place(&self, slot: usize) -> u32 {
        self.disk.data_offset + slot as u32 * self.place_bytes()
    }

    /// One call; `None`: the server ended, and there is another by now.
    async fn call(&self, ask: u64, pick_up: u64) -> Result<Option<Called>, String> {
        loop {
            self.calls.set(self.calls.get() + 1);
            let begun_ns = runtime::now_ns();
            match self.session.call(ask, pick_up, begun_ns + CALL_NS) {
                Ok(called) => {
                    let took_ns = runtime::now_ns() - begun_ns;
                    self.longest_ns.set(self.longest_ns.get().max(took_ns));
                    self.in_calls_ns.set(self.in_calls_ns.get() + took_ns);
                    return Ok(Some(called));
                }
                Err(CallFailure::Kernel(Error::PeerDead) | CallFailure::NotAttached) => break,
                Err(CallFailure::Kernel(Error::Timeout | Error::Busy)) => {
                    self.late.set(self.late.get() + 1);
                    runtime::sleep(AGAIN_NS).await;
                }
                Err(other) => return Err(format!("a call gives {other:?}")),
            }
        }
        self.deaths.set(self.deaths.get() + 1);
        // It is answered by the next server, which goes on with what the last one had.
        self.blocks.attach(self.first).await.map_err(|why| format!("attach again: {why:?}"))?;
        Ok(None)
    }

    /// Has all of them carried out, one in each slot; how they ended, in order. What a server that
    /// ended did not confirm is asked of the next, in order.
    async fn carry_out(&self, requests: &[Request]) -> Result<Vec<Ended>, String> {
        let mut ends = vec![Ended::NotAsked; requests.len()];
        requests.iter().enumerate().for_each(|(slot, request)| self.session.fill(slot, request));
        let mut to_ask = u64::MAX >> (SLOTS - requests.len());
        let mut pending = 0;
        while to_ask | pending != 0 {
            let ask = first(to_ask, BATCH_MAX as usize);
            let pick_up = first(pending, (BATCH_MAX - ask.count_ones()) as usize);
            let Some(called) = self.call(ask, pick_up).await? else {
                to_ask |= pending;
                pending = 0;
                continue;
            };
            to_ask &= !ask;
            pending = (pending | called.pending) & !called.ended;
            for slot in slots(called.ended) {
                match self.session.ended(slot) {
                    Ended::NotAsked => to_ask |= 1 << slot,
                    ended => {
                        self.note_cores(slot)?;
                        ends[slot] = ended;
                    }
                }
            }
            if to_ask == 0 && pending != 0 && called.ended == 0 {
                runtime::notified(RAISED).await;
            }
        }
        Ok(ends)
    }

    /// Where a request was submitted and given to the device.
    fn note_cores(&self, slot: usize) -> Result<(), String> {
        let Phases { submit_core, program_core, .. } = self.session.phases(slot);
        if submit_core != self.core {
            return Err(format!("a request of core {} was submitted on core {submit_core}", self.core));
        }
        self.submitted.set(self.submitted.get() + 1);
        self.handlers.borrow_mut().insert(program_core);
        Ok(())
    }

    /// The same by the ring, one after another.
    async fn ring(&self, requests: &[Request]) -> Result<Vec<Ended>, String> {
        let mut ends = Vec::new();
        for Request { operation, number, extent, offset } in requests {
            let done = match operation {
                Operation::Read => self.blocks.read(*number, *extent, *offset).await,
                Operation::Write => self.blocks.write(*number, *extent, *offset).await,
                _ => self.blocks.flush(*number).await.map(|_| ()),
            };
            done.map_err(|why| format!("by the ring: {why:?}"))?;
            ends.push(Ended::Done);
        }
        Ok(ends)
    }

    /// The same by either; they succeed.
    async fn succeed(&self, what: &str, transport: Transport, requests: &[Request]) -> Result<(), String> {
        let ends = match transport {
            Transport::Calls => self.carry_out(requests).await?,
            Transport::Ring => self.ring(requests).await?,
        };
        let failed = ends.iter().find(|end| !matches!(end, Ended::Done | Ended::WritesThrough));
        failed.map_or(Ok(()), |end| Err(format!("{what}: {end:?}")))
    }

    /// What single reads go through, phase by phase (NOVA, figure 2): each comes after the one
    /// before, and the call often returns before the device is done.
    async fn trace(&self) -> Result<(), String> {
        let (mut returned, mut told) = (0, String::new());
        let blocks = self.disk.sectors.min(SECTORS) / u64::from(BLOCK_SECTORS);
        for number in 0..TRACED as u64 {
            // Each another block: one that is kept by the server is not read again.
            let extent = Extent { sector: number % blocks * u64::from(BLOCK_SECTORS), sectors: BLOCK_SECTORS };
            self.session.fill(0, &self.request(Operation::Read, extent, self.place(0)));
            let request_ns = runtime::now_ns();
            let Some(Called { pending: 1, .. }) = self.call(1, 0).await? else {
                return Err("a read of the device is not pending".into());
            };
            let returned_ns = runtime::now_ns();
            runtime::notified(RAISED).await;
            let mut pick_up_ns = runtime::now_ns();
            while self.call(0, 1).await?.is_none_or(|called| called.ended == 0) {
                runtime::notified(RAISED).await;
                pick_up_ns = runtime::now_ns();
            }
            let picked_ns = runtime::now_ns();
            let phases = self.session.phases(0);
            let all = [
                ("request", request_ns),
                ("preprocess", phases.preprocess_ns),
                ("submit", phases.submit_ns),
                ("program", phases.program_ns),
                ("interrupt", phases.interrupt_ns),
                ("signal", phases.signal_ns),
                ("pick-up", picked_ns),
            ];
            if let Some(two) = all.windows(2).find(|two| two[0].1 > two[1].1) {
                return Err(format!("{} comes after {}: {all:?}", two[0].0, two[1].0));
            }
            returned += usize::from(returned_ns < phases.interrupt_ns);
            told = all.iter().map(|(name, at_ns)| format!(" {name} {}", at_ns - request_ns)).collect();
            // It may begin before the signal, if what it hears is of an earlier one.
            told += &format!(", begun {}", pick_up_ns - request_ns);
        }
        runtime::log!("phases of a read, in ns:{told}");
        runtime::log!("{returned} of {TRACED} calls returned before their interrupt");
        Ok(())
    }

    /// Whether a second read of a block is answered by the call that asks for it, and whether it
    /// gives what was written last, by whatever transport.
    async fn again(&self) -> Result<(), String> {
        let extent = Extent { sector: 0, sectors: BLOCK_SECTORS };
        let [write, read] = [self.place(0), self.place(1)];
        let mut is_at_once = false;
        for (round, transport) in [(ROUNDS + 1, Transport::Calls), (ROUNDS + 2, Transport::Ring)] {
            self.put(round, write, &extent)?;
            let request = self.request(Operation::Write, extent, write);
            self.succeed("again", transport, &[request]).await?;
            for _ in 0..2 {
                is_at_once = self.read_at_once(extent, read).await?;
                self.compare(round, read, &extent)?;
            }
        }
        let by = if is_at_once { "the call" } else { "the disk" };
        runtime::log!("a second read of a block is answered by {by}");
        Ok(())
    }

    /// A read by slot 1; whether the call that asked had its answer.
    async fn read_at_once(&self, extent: Extent, place: u32) -> Result<bool, String> {
        self.session.fill(1, &self.request(Operation::Read, extent, place));
        let is_at_once = self.call(2, 0).await?.ok_or("the server ended")?.ended == 2;
        while !is_at_once && self.call(0, 2).await?.is_none_or(|called| called.ended == 0) {
            runtime::notified(RAISED).await;
        }
        match self.session.ended(1) {
            Ended::Done => Ok(is_at_once),
            other => Err(format!("a read ends by {other:?}")),
        }
    }

    /// Two reads that are too much for one call of a server that decrypts: of the other it says
    /// itself that it can be picked up.
    async fn more(&self) -> Result<(), String> {
        let sectors = BILLED_SECTORS.min(self.disk.sectors_max);
        for slot in 0..2 {
            let place = self.disk.data_offset + slot as u32 * sectors * SECTOR_BYTES as u32;
            self.session.fill(slot, &self.request(Operation::Read, Extent { sector: 0, sectors }, place));
        }
        let mut pending = self.call(3, 0).await?.ok_or("the server ended")?.pending;
        // Both are done, and all that is said of it until then is heard.
        runtime::notified(RAISED).await;
        runtime::sleep(BATCH_NS).await;
        runtime::timeout(BATCH_NS, runtime::notified(RAISED)).await.ok();
        while pending != 0 {
            pending = self.call(0, pending).await?.ok_or("the server ended")?.pending;
            if pending != 0 {
                runtime::notified(RAISED).await;
            }
        }
        Ok(())
    }

    /// What it costs its caller to pick up what was read, and what was written.
    async fn bill(&self) -> Result<(), String> {
        let mut caller = Caller::start(BILLED, PRIORITY).map_err(|why| format!("nobody to call: {why:?}"))?;
        let mut least_ns = [u64::MAX; 2];
        for _ in 0..BILLS {
            for (operation, least_ns) in [Operation::Write, Operation::Read].into_iter().zip(&mut least_ns) {
                let extent = Extent { sector: 0, sectors: BILLED_SECTORS.min(self.disk.sectors_max) };
                self.session.fill(0, &self.request(operation, extent, self.disk.data_offset));
                self.call(1, 0).await?.ok_or("the server ended")?;
                let mut cost_ns = 0;
                while cost_ns == 0 {
                    runtime::notified(RAISED).await;
                    let before_ns = caller.used_ns().map_err(|why| format!("its time: {why:?}"))?;
                    let deadline_ns = runtime::now_ns() + CALL_NS;
                    let answer = caller.call(self.session.portal(), [0, 1, 0, 0], deadline_ns).await;
                    let after_ns = caller.used_ns().map_err(|why| format!("its time: {why:?}"))?;
                    cost_ns = if answer == Some([1, 0, 0]) { after_ns - before_ns } else { 0 };
                }
                *least_ns = cost_ns.min(*least_ns);
            }
        }
        let [write_ns, read_ns] = least_ns;
        runtime::log!("to pick up costs its caller {read_ns} ns for 128 KiB read, {write_ns} ns for as much written;");
        Ok(())
    }

    /// Reads and writes in one call, and as many ends by one; then what a call may not name.
    async fn batches(&self) -> Result<(), String> {
        let all = u64::from(u32::MAX);
        let mut tries = 1;
        while self.batch(all, tries).await? != 1 {
            tries += 1;
            if tries > BATCHES_MAX {
                return Err(format!("in {BATCHES_MAX} batches no call picked up 32 ends"));
            }
        }
        for (ask, pick_up) in [(u64::MAX >> 31, 0), (all, 1 << 40), (1, 1)] {
            let refused = self.session.call(ask, pick_up, runtime::now_ns() + CALL_NS);
            if refused != Err(CallFailure::Batch) {
                return Err(format!("a call of {ask:#x} and {pick_up:#x} gives {refused:?}"));
            }
        }
        runtime::log!("32 reads and writes were asked by 1 call, and picked up by 1");
        Ok(())
    }

    /// Asks that batch, numbered from 1, in one call; in how many it was picked up. Each has
    /// other blocks: one that is kept by the server would be answered at once.
    async fn batch(&self, all: u64, number: u64) -> Result<u32, String> {
        let blocks = self.disk.sectors.min(SECTORS) / u64::from(BLOCK_SECTORS);
        for slot in slots(all) {
            let block = (number * u64::from(all.count_ones()) + slot as u64) % blocks;
            let extent = Extent { sector: block * u64::from(BLOCK_SECTORS), sectors: BLOCK_SECTORS };
            let operation = if slot % 2 == 0 { Operation::Write } else { Operation::Read };
            self.session.fill(slot, &self.request(operation, extent, self.place(slot)));
        }
        let asked = self.session.call(all, 0, runtime::now_ns() + CALL_NS);
        if asked != Ok(Called { ended: 0, pending: all }) {
            return Err(format!("32 requests in one call give {asked:?}"));
        }
        let (mut picked, mut calls) = (0, 0);
        while picked != all {
            runtime::notified(RAISED).await;
            // Meanwhile the device does the rest.
            runtime::sleep(number * BATCH_NS).await;
            let called = self.session.call(0, all & !picked, runtime::now_ns() + CALL_NS);
            picked |= called.map_err(|why| format!("picking up gives {why:?}"))?.ended;
            calls += 1;
        }
        match slots(all).find(|slot| self.session.ended(*slot) != Ended::Done) {
            Some(slot) => Err(format!("request {slot} of 32 ended by {:?}", self.session.ended(slot))),
            None => Ok(calls),
        }
    }

    /// What is not to be done is refused in the call, without the device.
    async fn refusals(&self) -> Result<(), String> {
        let Disk { sectors, data_offset, data_bytes, .. } = self.disk;
        let last = Extent { sector: sectors - u64::from(BLOCK_SECTORS), sectors: BLOCK_SECTORS };
        let behind = Extent { sector: sectors, ..last };
        let old = Request { number: self.first - 1, ..self.request(Operation::Read, last, data_offset) };
        let asked = [
            (self.request(Operation::Read, behind, data_offset), BlocksError::Range),
            (self.request(Operation::Write, last, data_offset + data_bytes), BlocksError::Range),
            (self.request(Operation::Read, last, data_offset.wrapping_sub(512)), BlocksError::Range),
            (old, BlocksError::Number),
        ];
        asked.iter().enumerate().for_each(|(slot, (request, _))| self.session.fill(slot, request));
        let called = self.session.call(0xf, 0, runtime::now_ns() + CALL_NS);
        if called != Ok(Called { ended: 0xf, pending: 0 }) {
            return Err(format!("what is to be refused gives {called:?}"));
        }
        for (slot, (request, why)) in asked.iter().enumerate() {
            if self.session.ended(slot) != Ended::Failed(*why) {
                return Err(format!("{request:?} gives {:?}", self.session.ended(slot)));
            }
        }
        Ok(())
    }

    /// Writes all in pieces, flushes, reads it back and compares.
    async fn round(&self, round: u32, [write, read]: [Transport; 2]) -> Result<(), String> {
        let most = self.place_bytes() / SECTOR_BYTES as u32;
        let sectors = self.sectors.end - self.sectors.start;
        let mut all = pieces(round, sectors, self.disk.block_bytes / SECTOR_BYTES as u32, most);
        all.iter_mut().for_each(|piece| piece.sector += self.sectors.start);
        for (operation, transport) in [(Operation::Write, write), (Operation::Read, read)] {
            let is_read = operation == Operation::Read;
            for some in all.chunks(SLOTS) {
                let mut requests = Vec::new();
                for (slot, piece) in some.iter().enumerate() {
                    let place = self.place(slot);
                    if is_read {
                        let nothing = vec![NOTHING; piece.sectors as usize * SECTOR_BYTES];
                        self.data.write(place as usize, &nothing).map_err(|_| OUT)?;
                    } else {
                        self.put(round, place, piece)?;
                    }
                    requests.push(self.request(operation, *piece, place));
                }
                self.succeed(&format!("round {round}"), transport, &requests).await?;
                for (slot, piece) in some.iter().enumerate().filter(|_| is_read) {
                    self.compare(round, self.place(slot), piece)?;
                }
            }
            let flush = self.request(Operation::Flush, Extent { sector: 0, sectors: 0 }, 0);
            self.succeed("flush", transport, &[flush]).await?;
        }
        Ok(())
    }

    /// What is written to a piece in a round.
    fn put(&self, round: u32, place: u32, piece: &Extent) -> Result<(), String> {
        for (at, sector) in (0..piece.sectors as usize).zip(piece.sector..) {
            let bytes = word(sector, round).repeat(SECTOR_BYTES / 8);
            self.data.write(place as usize + at * SECTOR_BYTES, &bytes).map_err(|_| OUT)?;
        }
        Ok(())
    }

    fn compare(&self, round: u32, place: u32, piece: &Extent) -> Result<(), String> {
        for (at, sector) in (0..piece.sectors as usize).zip(piece.sector..) {
            let mut found = [0; SECTOR_BYTES];
            let read = self.data.read(place as usize + at * SECTOR_BYTES, &mut found);
            read.map_err(|_| OUT)?;
            let expected = word(sector, round);
            if let Some(wrong) = found.chunks_exact(8).find(|part| **part != expected) {
                return Err(format!("round {round}: sector {sector} has {wrong:x?}, not {expected:x?}"));
            }
        }
        Ok(())
    }

    /// Says whether a call of an earlier life's still writes; then reads for ever, so that it is
    /// killed amid a call.
    async fn reads(&self) -> Result<(), String> {
        let Disk { sectors, data_offset, data_bytes, .. } = self.disk;
        self.data.write(data_offset as usize, &vec![NOTHING; data_bytes as usize]).map_err(|_| OUT)?;
        // It gives the worker time.
        self.call(0, 0).await?;
        let mut found = vec![0; data_bytes as usize];
        self.data.read(data_offset as usize, &mut found).map_err(|_| OUT)?;
        let written = found.iter().filter(|byte| **byte != NOTHING).count();
        runtime::log!("{written} bytes were written for an earlier life;");
        let most = u64::from(BILLED_SECTORS.min(self.disk.sectors_max));
        for sector in (0..=sectors.min(SECTORS) - most).step_by(most as usize).cycle() {
            let extent = Extent { sector, sectors: most as u32 };
            self.succeed("a read", Transport::Calls, &[self.request(Operation::Read, extent, data_offset)]).await?;
        }
        Ok(())
    }

    /// Reads so often, and says how long its calls took. One of two begins when the other is done:
    /// a call that the other interrupts would seem to take its time, too.
    async fn traced(&self, times: u64, is_second: bool) -> Result<(), String> {
        let end = self.data.len() - TRACED_BY_ONE.len();
        let mut found = [0; TRACED_BY_ONE.len()];
        while is_second && found != TRACED_BY_ONE {
            runtime::sleep(LOOK_NS).await;
            self.data.read(end, &mut found).map_err(|_| OUT)?;
        }
        let sectors = BILLED_SECTORS.min(self.disk.sectors_max);
        for number in 0..times {
            let extent = Extent { sector: number % 2 * u64::from(sectors), sectors };
            let request = self.request(Operation::Read, extent, self.disk.data_offset);
            self.succeed("a read that is traced", Transport::Calls, &[request]).await?;
        }
        let (calls, took_ns) = (self.calls.get(), self.in_calls_ns.get());
        runtime::log!("{times} reads took {took_ns} ns by the clock, in {calls} calls;");
        if !is_second {
            self.data.write(end, &TRACED_BY_ONE).map_err(|_| OUT)?;
        }
        Ok(())
    }

    /// Asks for all that it may, and no more is heard of it.
    async fn sleep(&self) -> Result<(), String> {
        for slot in 0..SLOTS {
            let extent = Extent { sector: 0, sectors: BLOCK_SECTORS };
            self.session.fill(slot, &self.request(Operation::Read, extent, self.disk.data_offset));
        }
        for half in [u64::from(u32::MAX), u64::MAX << 32] {
            self.call(half, 0).await?;
        }
        // Its slots are taken: one more is refused.
        let extent = Extent { sector: 0, sectors: BLOCK_SECTORS };
        self.session.fill(0, &self.request(Operation::Read, extent, self.disk.data_offset));
        self.call(1, 0).await?;
        let refused = self.session.ended(0);
        if refused != Ended::Failed(BlocksError::Number) {
            return Err(format!("one more than all slots gives {refused:?}"));
        }
        runtime::log!("asked for {SLOTS} reads, and never picks up");
        core::future::pending().await
    }
}

/// The first so many slots of a word.
fn first(word: u64, most: usize) -> u64 {
    slots(word).take(most).fold(0, |all, slot| all | 1 << slot)
}

async fn check(start: &Start) -> Result<(), String> {
    let server = start.clients_that_call::<BlocksClient>().pop();
    let (name, blocks, calls) = server.ok_or("no channel to a server of blocks: correct system/*.toml")?;
    let data = ["plain-data", "disk-data"].into_iter().find_map(|name| start.region(name));
    let data = data.ok_or("no region plain-data or disk-data: correct system/*.toml")?.memory();
    let calls = calls.ok_or_else(|| format!("no calls of {name}: give it workers in system/*.toml"))?;
    let first = runtime::now_ns();
    let disk = blocks.attach(first).await.map_err(|why| format!("attach: {why:?}"))?;
    let program = start.program();
    let (count, number) = program.map_or((1, 0), |program| (program.cores.len() as u64, program.number as u64));
    let each = disk.sectors.min(SECTORS) / count / u64::from(BLOCK_SECTORS) * u64::from(BLOCK_SECTORS);
    let session = Session::new(calls);
    let waiter = Waiter::start(session.semaphore(), RAISED, PRIORITY);
    let _waiter = waiter.map_err(|why| format!("no companion: {why:?}"))?;
    let next = Cell::new(first);
    let checker = Checker {
        blocks,
        session,
        data,
        disk,
        first,
        next,
        calls: Cell::default(),
        deaths: Cell::default(),
        late: Cell::default(),
        longest_ns: Cell::default(),
        in_calls_ns: Cell::default(),
        sectors: number * each..(number + 1) * each,
        core: start.core(),
        submitted: Cell::default(),
        handlers: RefCell::default(),
    };
    let is_sleeper = start.name() == SLEEPER;
    let traced = |word: &str| word.strip_prefix(start.name())?.strip_prefix(TRACE)?.parse().ok();
    if let Some(times) = start.command_line().split(' ').find_map(traced) {
        return checker.traced(times, is_sleeper).await;
    }
    if is_sleeper {
        return checker.sleep().await;
    }
    let is_told = |word| start.command_line().split(' ').any(|told| told == word);
    if is_told(READS) {
        return checker.reads().await;
    }
    let (is_forever, is_one) = (is_told(FOREVER), start.program().is_none());
    if !is_one {
        checker.trace().await?;
    } else if !is_forever {
        checker.trace().await?;
        checker.again().await?;
        checker.more().await?;
        checker.bill().await?;
        checker.batches().await?;
        checker.refusals().await?;
    }
    let rounds = if is_one { ROUNDS } else { ROUNDS_OF_CORES };
    for round in 1..=if is_forever { u32::MAX } else { rounds } {
        // Those that hear of deaths do so by calls.
        let is_mixed = is_one && !is_forever;
        let transports = TRANSPORTS[if is_mixed { (round as usize - 1) % TRANSPORTS.len() } else { 0 }];
        checker.round(round, transports).await?;
        let Checker { next, calls, deaths, late, longest_ns, .. } = &checker;
        let requests = next.get() - first;
        runtime::log!(
            "round {round} is there: {requests} requests, {} calls, {} deaths, {} late, the longest took {} ns;",
            calls.get(),
            deaths.get(),
            late.get(),
            longest_ns.get()
        );
    }
    let (core, submitted, handlers) = (checker.core, checker.submitted.get(), checker.handlers.borrow());
    runtime::log!("{submitted} requests submitted on core {core}, given to the device on {handlers:?};");
    runtime::log!("done");
    Ok(())
}

async fn component(start: Start) {
    start.serving();
    if let Err(why) = check(&start).await {
        runtime::log!("failed: {why}");
    }
    // Its end would begin it again.
    core::future::pending().await
}

runtime::main!(component);
