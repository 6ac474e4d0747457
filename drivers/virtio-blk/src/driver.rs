//! The driver as a step machine: device and clients' requests in, ends of requests out.

use alloc::vec::Vec;
use packet::{BufferSet, Memory};
use virtio::pool_queue::{self, Broken, Descriptor, ENTRIES, Queue, Target, Unlike};
use virtio::takeover::{self, Left, Unfit};
use virtio::transport::{DeviceOwner, QueueAddresses, ResetError, Transport, reset, run, status, stop};

use crate::command::{self, Command, Seen};
use crate::geometry::{BadGeometry, Geometry, feature};
use crate::ledger::{Entry, Ledger};
use crate::record::{EXTRA_OFFSET, HEADER_OFFSET, Head, Records, STATUS_OFFSET, TABLE_OFFSET, slot_offset};
use crate::request::{Answer, CLIENTS_MAX, Completion, Failure, IDENTITY_BYTES, Operation, Refused, Request};

/// The one queue that is used.
const REQUESTS: u16 = 0;
/// Where it is in the ring region.
const QUEUE_OFFSET: usize = 0;
/// Most commands that the device has at a time: what a host's disk takes at once, so that a client
/// with many requests does not stand before all of another's.
pub const DEPTH_MAX: usize = 64;

/// Why the device did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// It does not come out of a reset as we need it.
    Reset(ResetError),
    /// Its queue has fewer entries than there are slots. Remedy: QEMU's queue-size=256.
    Queue,
    /// What it tells of itself cannot be.
    Geometry(BadGeometry),
    /// The ring region is too small, or there is no data for each client.
    Region,
}

impl From<ResetError> for StartError {
    fn from(error: ResetError) -> StartError {
        StartError::Reset(error)
    }
}

impl From<BadGeometry> for StartError {
    fn from(error: BadGeometry) -> StartError {
        StartError::Geometry(error)
    }
}

/// How the device was found.
pub type Found = takeover::Found<Why>;

/// Why a device was reset that had a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not as the driver left it.
    Left(Unfit),
    /// What it tells of itself is not.
    Geometry(BadGeometry),
    /// The queue is not, or a command and the records of its requests.
    Queue(Unlike),
}

/// Numbers for a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were accepted,
    pub requests: u64,
    /// and asked for again while they were not ended.
    pub joined: u64,
    /// Commands that the device was given.
    pub commands: u64,
    /// Times the device was started again because it said something impossible, or did nothing.
    pub restarts: u64,
}

/// Regions of a driver.
#[derive(Clone, Debug)]
pub struct Places<M> {
    /// Queue and records, [`RING_BYTES`](crate::record::RING_BYTES) at least.
    pub rings: M,
    /// Where devices see it.
    pub rings_physical: u64,
    /// Where they see the data region.
    pub data_physical: u64,
    /// Its bytes.
    pub data_bytes: u32,
    /// Clients, each of which has an equal part of the data region, in order.
    pub clients: u8,
}

impl<M> Places<M> {
    /// First byte and bytes of each client's part of the data region.
    pub fn part(&self, client: u8) -> Option<(u32, u32)> {
        if client >= self.clients {
            return None;
        }
        let bytes = self.data_bytes / u32::from(self.clients) / 4096 * 4096;
        Some((u32::from(client) * bytes, bytes))
    }

    fn seen(&self) -> Seen {
        Seen { rings: self.rings_physical, data: self.data_physical }
    }

    /// Whether the request's bytes are in its client's part.
    fn holds(&self, request: &Request) -> bool {
        let Some((first, bytes)) = self.part(request.client) else { return false };
        let Some(offset) = request.offset.checked_sub(first) else {
            return !request.operation.has_data() && request.offset == 0;
        };
        let is_inside = offset.checked_add(request.bytes()).is_some_and(|end| end <= bytes);
        if request.operation.has_data() { is_inside } else { request.offset == 0 }
    }
}

/// The driver of one device.
pub struct Driver<T, M> {
    transport: T,
    places: Places<M>,
    head: Head<M>,
    queue: Queue<M>,
    ledger: Ledger<M>,
    disk: Geometry,
    features: u64,
    output: Vec<Completion>,
    /// Something was given that the device was not shown.
    has_news: bool,
    counters: Counters,
}

impl<T: Transport, M: Memory + Clone> Driver<T, M> {
    /// Goes on with the device that a predecessor left running, if all is as it would have left it;
    /// else resets it and gives it again what had not ended. Tells which, and why.
    pub fn start(
        mut transport: T,
        places: Places<M>,
        owner: &mut dyn DeviceOwner,
    ) -> Result<(Driver<T, M>, Found), StartError> {
        let records = Records::new(places.rings.clone()).map_err(|_| StartError::Region)?;
        if !(1..=CLIENTS_MAX).contains(&places.clients) || places.part(0).is_none_or(|(_, bytes)| bytes == 0) {
            return Err(StartError::Region);
        }
        let (head, left) = Head::recover(places.rings.clone());
        let mut ledger = if left.is_some() {
            Ledger::recover(records, |request| places.holds(request))
        } else {
            // Nobody knows what it works with, if anything.
            stop(&mut transport, owner)?;
            let ledger = Ledger::clear(records);
            head.claim();
            ledger
        };
        let adopted = left.map(|left| go_on(&mut transport, &places, &head, &mut ledger, left, owner));
        let (found, Works { queue, disk, features }) = match adopted {
            Some(Ok(works)) => (Found::Running, works),
            failed => {
                let works = start_anew(&mut transport, &places, &head, owner)?;
                // No fault of theirs.
                ledger.take_back(false);
                (failed.and_then(Result::err).map_or(Found::Fresh, Found::Reset), works)
            }
        };
        let counters = Counters::default();
        let (output, has_news) = (Vec::new(), false);
        let mut driver = Driver { transport, places, head, queue, ledger, disk, features, output, has_news, counters };
        if found == Found::Running {
            // A predecessor may have died before it did.
            driver.transport.notify(REQUESTS);
        }
        Ok((driver, found))
    }

    /// The driver has served for a while: its successor may go on with the device.
    pub fn served(&mut self) {
        self.head.keep_heirs(0);
    }

    /// The disk.
    pub fn disk(&self) -> &Geometry {
        &self.disk
    }

    /// First byte and bytes of a client's part of the data region.
    pub fn part(&self, client: u8) -> Option<(u32, u32)> {
        self.places.part(client)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Requests that have not ended.
    pub fn pending(&self) -> usize {
        self.ledger.pending()
    }

    /// Whether the device asks for a reset, or was reset by somebody else.
    pub fn is_lost(&mut self) -> bool {
        self.transport.status() != status::RUNNING
    }

    /// Whether the device has something to do; and how far it has come with such, ever.
    pub fn progress(&self) -> Option<u16> {
        (self.ledger.given() > 0).then(|| self.queue.progress())
    }

    /// Answers an interrupt at the device; tells whether its configuration may have changed.
    pub fn acknowledge(&mut self) -> bool {
        self.transport.acknowledge()
    }

    /// The configuration changed: whether the disk is another one now, larger or smaller. What was
    /// accepted of it stays with the device, which answers it.
    pub fn look_at_size(&mut self) -> Result<bool, BadGeometry> {
        let disk = Geometry::read(self.features, |offset| self.transport.configuration(offset))?;
        // All else holds for as long as the features do.
        let is_news = disk.sectors != self.disk.sectors;
        self.disk.sectors = disk.sectors;
        Ok(is_news)
    }

    /// Accepts a request; its end is told by [`take_output`](Self::take_output), once, and only if
    /// this driver lives: a client that hears nothing asks again with the same number, and the
    /// request is carried out once more only if it had ended.
    pub fn submit(&mut self, request: Request) -> Result<(), Refused> {
        self.disk.check(&request)?;
        if !self.places.holds(&request) {
            return Err(Refused::Range);
        }
        if request.operation == Operation::Flush && !self.disk.keeps_back {
            self.finish(request, Ok(Answer::WritesThrough));
            return Ok(());
        }
        match self.ledger.enter(request)? {
            true => self.counters.requests += 1,
            false => self.counters.joined += 1,
        }
        Ok(())
    }

    /// Nobody waits any more for the client's requests with numbers below `id`.
    pub fn abandon(&mut self, client: u8, id: u64) {
        self.ledger.abandon(client, id);
    }

    /// Whether the device may still read or write for the client's requests with numbers below
    /// `id`.
    pub fn holds(&self, client: u8, id: u64) -> bool {
        self.ledger.holds(client, id)
    }

    /// Looks what the device has done. `Err`: it said something impossible and has to be started
    /// again.
    pub fn look(&mut self) -> Result<(), Broken> {
        loop {
            let Some(used) = self.queue.next_used()? else {
                // What it did before it could know that an interrupt is wanted brings none.
                self.queue.want_interrupts(true);
                match self.queue.next_used()? {
                    None => return Ok(()),
                    Some(_) => continue,
                }
            };
            self.complete(used.buffer, used.written)?;
        }
    }

    /// The device is done with a command.
    fn complete(&mut self, slot: u16, written: u32) -> Result<(), Broken> {
        let requests = self.ledger.requests(slot);
        let command = Command::new(&requests, slot, self.places.seen(), &self.disk).ok_or(Broken)?;
        let at = slot_offset(slot);
        let mut answer = [command::status::NONE];
        self.places.rings.read(at + STATUS_OFFSET, &mut answer).map_err(|_| Broken)?;
        let outcome = match answer {
            [command::status::OK] => Ok(Answer::Done),
            [command::status::IO_ERROR] => Err(Failure::Io),
            [command::status::UNSUPPORTED] => Err(Failure::Unsupported),
            _ => return Err(Broken),
        };
        if written > command.writable {
            return Err(Broken);
        }
        self.queue.accept(slot)?;
        // Which of them failed is found out.
        if outcome.is_err() && self.ledger.split(slot) {
            return Ok(());
        }
        for Entry { request, is_orphan, .. } in self.ledger.end(slot) {
            let outcome = match (request.operation, outcome) {
                (Operation::Identify, Ok(_)) => Ok(Answer::Identity(self.identity(at))),
                (_, outcome) => outcome,
            };
            if !is_orphan {
                self.finish(request, outcome);
            }
        }
        Ok(())
    }

    fn identity(&self, slot: usize) -> [u8; IDENTITY_BYTES] {
        let mut name = [0; IDENTITY_BYTES];
        // In bounds: looked at when the records were made.
        let _ = self.places.rings.read(slot + EXTRA_OFFSET, &mut name);
        name
    }

    fn finish(&mut self, Request { client, id, .. }: Request, outcome: Result<Answer, Failure>) {
        self.output.push(Completion { client, id, outcome });
    }

    /// End of a turn: gives the device what it has room for, and shows it.
    pub fn flush(&mut self) {
        while self.ledger.given() < DEPTH_MAX
            && let Some(slot) = self.ledger.give(&self.disk)
        {
            self.give(slot);
        }
        if core::mem::take(&mut self.has_news) && self.queue.publish() {
            self.transport.notify(REQUESTS);
        }
    }

    fn give(&mut self, slot: u16) {
        let requests = self.ledger.requests(slot);
        let Some(command) = Command::new(&requests, slot, self.places.seen(), &self.disk) else {
            // Accepted of another geometry, by a predecessor.
            let ended = self.ledger.end(slot);
            return self.fail(ended);
        };
        let at = slot_offset(slot);
        let write = |offset: usize, bytes: &[u8]| {
            // In bounds: looked at when the records were made.
            let _ = self.places.rings.write(at + offset, bytes);
        };
        write(HEADER_OFFSET, &command.header);
        write(STATUS_OFFSET, &[command::status::NONE]);
        write(EXTRA_OFFSET, &command.range.unwrap_or_default());
        write(TABLE_OFFSET, &command.table);
        let is_new = self.queue.give(slot, descriptor(&self.places, slot, &command));
        assert!(is_new, "the device has a command of a slot that was free");
        self.counters.commands += 1;
        self.has_news = true;
    }

    /// What ended.
    pub fn take_output(&mut self) -> Vec<Completion> {
        core::mem::take(&mut self.output)
    }

    /// Starts a device again that said something impossible or does nothing. What it had is given
    /// to it again, in order; with a request with which that happened too often it is not tried any
    /// more.
    pub fn restart(&mut self, owner: &mut dyn DeviceOwner) -> Result<(), StartError> {
        self.counters.restarts += 1;
        let works = start_anew(&mut self.transport, &self.places, &self.head, owner)?;
        (self.queue, self.disk, self.features) = (works.queue, works.disk, works.features);
        self.has_news = false;
        let failed = self.ledger.take_back(true);
        self.fail(failed);
        Ok(())
    }

    fn fail(&mut self, entries: Vec<Entry>) {
        for Entry { request, .. } in entries.into_iter().filter(|entry| !entry.is_orphan) {
            self.finish(request, Err(Failure::Io));
        }
    }
}

/// What a device that was brought up works with.
struct Works<M> {
    queue: Queue<M>,
    disk: Geometry,
    features: u64,
}

/// The queue's entry for a command.
fn descriptor<M>(places: &Places<M>, slot: u16, command: &Command) -> Descriptor {
    let physical = places.rings_physical + (slot_offset(slot) + TABLE_OFFSET) as u64;
    Descriptor { physical, bytes: command.table.len() as u32 }
}

fn queue_place<M>(places: &Places<M>) -> (u16, u16, QueueAddresses) {
    (REQUESTS, ENTRIES, pool_queue::addresses(QUEUE_OFFSET, places.rings_physical))
}

/// Goes on with the device that a predecessor left. Believes nothing that does not fit: each
/// command that the device may still read is compared with the records of its requests.
fn go_on<T: Transport, M: Memory + Clone>(
    transport: &mut T,
    places: &Places<M>,
    head: &Head<M>,
    ledger: &mut Ledger<M>,
    left: Left,
    owner: &mut dyn DeviceOwner,
) -> Result<Works<M>, Why> {
    let queues = [queue_place(places)];
    let adopted = left.adopt(transport, owner, feature::NEEDED, &queues, |heirs| head.keep_heirs(heirs));
    let features = adopted.map_err(Why::Left)?;
    // Interrupts went nowhere for a while. One that comes from here on is for what is not read yet.
    transport.acknowledge();
    let disk = Geometry::read(features, |offset| transport.configuration(offset)).map_err(Why::Geometry)?;
    let is_right = |slot: u16, found: Descriptor| {
        let command = Command::new(&ledger.requests(slot), slot, places.seen(), &disk);
        command.is_some_and(|command| is_written(places, slot, &command) && found == descriptor(places, slot, &command))
    };
    let adopted = Queue::adopt(places.rings.clone(), QUEUE_OFFSET, Target::Tables, is_right, |_| false);
    let mut queue = adopted.map_err(Why::Queue)?;
    let given: BufferSet = queue.given();
    ledger.keep(|slot| given.contains(slot));
    if features & feature::EVENT_INDEX != 0 {
        queue.use_event_index();
    }
    Ok(Works { queue, disk, features })
}

/// Whether a slot has all that the device reads of a command.
fn is_written<M: Memory>(places: &Places<M>, slot: u16, command: &Command) -> bool {
    let at = slot_offset(slot);
    let is = |offset: usize, bytes: &[u8]| {
        let mut found = alloc::vec![0; bytes.len()];
        places.rings.read(at + offset, &mut found).is_ok() && found == bytes
    };
    is(HEADER_OFFSET, &command.header)
        && is(TABLE_OFFSET, &command.table)
        && command.range.is_none_or(|range| is(EXTRA_OFFSET, &range))
}

/// Resets the device and starts it with an empty queue.
fn start_anew<T: Transport, M: Memory + Clone>(
    transport: &mut T,
    places: &Places<M>,
    head: &Head<M>,
    owner: &mut dyn DeviceOwner,
) -> Result<Works<M>, StartError> {
    head.starts();
    let features = reset(transport, feature::NEEDED, &feature::WANTED, owner)?;
    let (index, entries, addresses) = queue_place(places);
    if transport.queue_entries(index) < entries {
        return Err(StartError::Queue);
    }
    let disk = Geometry::read(features, |offset| transport.configuration(offset))?;
    // The device is quiet: what it wrote here is of no use any more.
    let queue = Queue::new(places.rings.clone(), QUEUE_OFFSET, Target::Tables);
    let mut queue = queue.map_err(|_| StartError::Region)?;
    if features & feature::EVENT_INDEX != 0 {
        queue.use_event_index();
    }
    transport.set_queue(index, entries, addresses);
    run(transport);
    head.runs(features);
    Ok(Works { queue, disk, features })
}
