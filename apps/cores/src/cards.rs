//! Two network cards on one cable that nobody else has, driven from here by the driver's library:
//! what a device tells and takes, and a kernel core that polls their rings while their interrupts
//! are masked.

use abi::{Call, Handle, PAGE_BYTES};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use packet::{BufferSet, POOL_BYTES, Span};
use virtio_net::device::{self, Claim};
use virtio_net::driver::{HEADER_BYTES, RING_BYTES, Region};
use virtio_net::{Driver, Places, Transport};

use crate::claim::{LIMIT_NS, PAUSE_NS, again};
use crate::page::Pages;
use crate::polling::{KernelCore, Word};
use crate::{Bench, Outcome, ensure, refused};

/// A network device of VIRTIO 1.2, 5.1.
const NETWORK: (u16, u16) = (0x1af4, 0x1041);
/// Bits for the kernel core's wake-ups, one of each card.
const POLLED: [u64; 2] = [1 << 59, 1 << 60];
/// Bits for interrupts of any card: of its queues, and of its configuration.
const INTERRUPT: u64 = 1 << 57;
const CHANGED: u64 = 1 << 58;
const FRAMES: u8 = 100;
/// Of its transmit pool; one frame is on its way at a time.
const BUFFER: u16 = 7;
/// A header, and the byte that tells frames apart.
const FRAME_BYTES: usize = 60;
/// In the range that IEEE 802c leaves to the administrator of a network.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
/// For local experiments (IEEE 802).
const KIND: [u8; 2] = [0x88, 0xb5];

/// A card of ours.
struct Card {
    handle: Handle,
    claim: Claim,
    driver: Driver<Box<dyn Transport>, channel::Bulk>,
    rings: Pages,
    receive: Pages,
    transmit: Pages,
}

fn pages(bytes: usize) -> Result<Pages, String> {
    Pages::new((bytes as u64).div_ceil(PAGE_BYTES)).map_err(refused("SegmentAlloc"))
}

impl Card {
    fn open(bench: &Bench, hwid: u64) -> Result<Card, String> {
        let handle = sys::device_alloc(bench.cores, Handle::SELF_RAM, hwid).map_err(refused("DeviceAlloc"))?;
        let (transport, claim) = device::open(handle, virtio_net::KIND)?;
        let [rings, receive, transmit] = [pages(RING_BYTES)?, pages(POOL_BYTES)?, pages(POOL_BYTES)?];
        let region = |pages: &Pages| Region { memory: pages.memory(), physical: pages.physical };
        let places = Places { rings: region(&rings), receive: receive.physical, transmit: region(&transmit) };
        let started = Driver::start(transport, places, &mut device::Card::new(claim, LIMIT_NS));
        let (mut driver, _) = started.map_err(|error| format!("the card does not start: {error:?}"))?;
        driver.attach(&BufferSet::EMPTY);
        driver.flush();
        Ok(Card { handle, claim, driver, rings, receive, transmit })
    }

    /// Both cards, in the order of the list.
    fn both(bench: &Bench) -> Result<[Card; 2], String> {
        let records = (0..).map_while(|index| sys::device_list(index).ok());
        let cards = records.filter(|record| (record.vendor, record.device) == NETWORK);
        let cards: Result<Vec<Card>, String> = cards.map(|record| Card::open(bench, record.hwid)).collect();
        cards?.try_into().map_err(|cards: Vec<Card>| format!("{} cards", cards.len()))
    }

    fn send(&mut self, to: [u8; 6], mark: u8) -> Outcome {
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&self.driver.address());
        frame[12..14].copy_from_slice(&KIND);
        frame[14] = mark;
        let at = usize::from(BUFFER) * packet::BUFFER_BYTES + HEADER_BYTES;
        self.transmit.memory().write(at, &frame).map_err(|_| String::from("no room for a frame"))?;
        self.driver.transmit(&[Span { buffer: BUFFER, offset: HEADER_BYTES as u16, length: FRAME_BYTES as u16 }]);
        self.driver.flush();
        Ok(())
    }

    /// Marks of the frames that have come since the last time; the card may use their buffers
    /// again. What was sent is done with too.
    fn marks(&mut self) -> Result<Vec<u8>, String> {
        self.driver.look().map_err(|_| String::from("the card broke the protocol"))?;
        let received = self.driver.take_output().received;
        let mark = |span: &Span| {
            let mut byte = [0];
            let at = usize::from(span.buffer) * packet::BUFFER_BYTES + usize::from(span.offset) + 14;
            self.receive.memory().read(at, &mut byte).map(|()| byte[0]).map_err(|_| String::from("a wild span"))
        };
        let marks = received.iter().map(mark).collect();
        self.driver.release_buffers(&received.iter().map(|span| span.buffer).collect::<Vec<_>>());
        self.driver.flush();
        marks
    }

    /// Looks until the frame with that mark has come; all marks until then.
    async fn until(&mut self, mark: u8) -> Result<Vec<u8>, String> {
        let (mut all, end_ns) = (Vec::new(), runtime::now_ns() + LIMIT_NS);
        loop {
            all.extend(self.marks()?);
            if all.contains(&mark) {
                return Ok(all);
            }
            again(end_ns, "a frame does not arrive").await?;
        }
    }

    /// Has it receive all frames, or not, and waits until it does so.
    async fn receive_all(&mut self, on: bool) -> Outcome {
        self.driver.set_promiscuous(on);
        self.driver.flush();
        let end_ns = runtime::now_ns() + LIMIT_NS;
        loop {
            self.marks()?;
            match self.driver.promiscuous() {
                Some(Ok(found)) => return ensure(found == on, || format!("set to {on} it is {found}")),
                Some(Err(_)) => return Err(String::from("the card takes no settings")),
                None => again(end_ns, "the card does not answer").await?,
            }
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // Quiet before its memory goes.
        let _ = sys::device_master(self.handle, false).and_then(|()| sys::cap_drop(self.handle));
    }
}

/// A card tells its address, link and rings, and receives what it is set to: frames for others only
/// while all are wanted.
pub async fn settings(bench: &Bench) -> Outcome {
    let [mut one, mut other] = Card::both(bench)?;
    let addresses = [one.driver.address(), other.driver.address()];
    ensure(addresses[0] != addresses[1] && addresses[0][0] & 1 == 0, || format!("addresses {addresses:02x?}"))?;
    ensure(one.driver.link_is_up() && other.driver.link_is_up(), || String::from("a card without a link"))?;
    runtime::log!("cards {addresses:02x?}, rings {:?}", one.driver.rings());
    let mut mark = 0;
    for all in [false, true, false, true] {
        other.receive_all(all).await?;
        one.send(NOBODY, mark + 1)?;
        one.until_sent().await?;
        // Frames keep their order.
        one.send(addresses[1], mark + 2)?;
        let seen = other.until(mark + 2).await?;
        one.until_sent().await?;
        ensure(seen.contains(&(mark + 1)) == all, || format!("all frames: {all}, and it saw {seen:?}"))?;
        mark += 2;
    }
    Ok(())
}

impl Card {
    /// Waits until the card has read what was sent: its buffer is free again.
    async fn until_sent(&mut self) -> Outcome {
        let end_ns = runtime::now_ns() + LIMIT_NS;
        while self.driver.sending() > 0 {
            self.marks()?;
            again(end_ns, "the card does not send").await?;
        }
        Ok(())
    }
}

/// A kernel core polls the receive rings of both cards and wakes us for each frame, while their
/// interrupts are masked; when they are not, the cards do interrupt.
pub async fn polled(bench: &Bench) -> Outcome {
    let mut cards = Card::both(bench)?;
    let words = [0, 1].map(|index| {
        let card = &cards[index];
        Word { segment: card.rings.segment, offset: card.driver.used_words()[0] as u64, badge: POLLED[index] }
    });
    let mut core = KernelCore::polling(bench, &words).await?;
    let first = core.first_word();
    let before = [core.stat(first).await?, core.stat(first + 1).await?];
    let addresses = [cards[0].driver.address(), cards[1].driver.address()];
    for mark in 1..=FRAMES {
        let receiver = usize::from(mark % 2);
        cards[1 - receiver].send(addresses[receiver], mark)?;
        let told = runtime::timeout(LIMIT_NS, runtime::notified(POLLED[receiver])).await;
        ensure(told.is_ok(), || format!("frame {mark} was not told"))?;
        let marks = cards[receiver].until(mark).await?;
        ensure(marks == [mark], || format!("frame {mark} came as {marks:?}"))?;
        cards[1 - receiver].until_sent().await?;
    }
    for (index, before) in (0..).zip(before) {
        let [_, polls, found] = core.stat(first + index).await?;
        let wanted = before[2] + u64::from(FRAMES / 2);
        ensure(polls > before[1] && found == wanted, || format!("card {index}: {polls} polls, {found} of {wanted}"))?;
        runtime::log!("card {index} of the kernel core: {} polls, {found} frames found", polls - before[1]);
    }
    core.call(0, Call::Null, [0; 6]).await?.map_err(refused("Null by a ring"))?;
    // All along the cards would have interrupted, had anybody let them.
    for card in &cards {
        device::interrupt(card.claim, INTERRUPT, CHANGED).map_err(refused("DeviceInterrupt"))?;
    }
    runtime::sleep(PAUSE_NS).await;
    cards[0].send(addresses[1], FRAMES + 1)?;
    let told = runtime::timeout(LIMIT_NS, runtime::notified(INTERRUPT)).await;
    ensure(told.is_ok(), || String::from("a card that may interrupt does not"))?;
    cards[1].until(FRAMES + 1).await?;
    core.end(bench).await
}
