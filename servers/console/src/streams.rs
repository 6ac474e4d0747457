//! The program's three streams and its terminal over a device of their own, so that a console's
//! death neither loses nor doubles a byte of them.
//!
//! [`Kept`] in the region `streams` decides what happened: how far each stream has come, and which
//! request of which client had which result. It is written whole to one of two places in turn, and
//! one word says which counts. What a request does to the device's queues is prepared without an
//! effect, then kept, then published; a successor publishes what it finds, and a client that asks
//! again is told what its request came to.
//!
//! A successor believes nothing that has not its checksum: it resets the device, and says so.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use core::cell::{Cell, RefCell};

use crate::record::checksum;
use packet::{Memory, OutOfBounds};
use virtio::Transport;
use virtio::port::{Broken, Position};
use virtio::ports::{self, In, Out, Ports, Positions, StartError};
use virtio::takeover;
use virtio::transport::{DeviceOwner, NotRunning};
use zeroize::{Zeroize, Zeroizing};

/// Name of the region.
pub const REGION: &str = "streams";
/// Behind the device's queues: which place counts, the two places, and what clients were told.
const CHOICE_AT: usize = ports::END;
/// The word, for each place: no damaged byte makes one of the other.
const CHOICES: [u32; 2] = [u32::from_le_bytes(*b"1st."), u32::from_le_bytes(*b"2ND!")];
const PLACES_AT: [usize; 2] = [ports::END + 64, ports::END + 64 + PLACE_BYTES];
const PLACE_BYTES: usize = 128;
const PLACE_SUM_AT: usize = PLACE_BYTES - 8;
const TOLD_AT: usize = ports::END + 4096;
const TOLD_BYTES: usize = 24;
const TOLD_SUM_AT: usize = TOLD_BYTES - 4;
/// Clients whose last result is remembered: more than there may be programs at once.
const TOLD_MAX: usize = 1024;
/// Bytes that the region must have.
pub const REGION_BYTES: usize = TOLD_AT + TOLD_MAX * TOLD_BYTES;
/// "STRM" and the record's version.
const MAGIC: u64 = 0x5354_524d_0000_0002;
/// Longest line on the control port: that of a key.
const LINE_MAX: usize = KEY_WORD.len() + 2 * KEY_BYTES_MAX + 2;
/// Begins the line of a key; its bytes follow, two digits each.
const KEY_WORD: &str = "key";
/// Bytes of the longest key; what they mean its user knows.
const KEY_BYTES_MAX: usize = 128;
const NO_END: u64 = u64::MAX;

/// A request of a client that can be asked again: who, and which. `None`: it cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Which place for clients it has; processes that follow each other may have the same.
    pub client: u64,
    /// Never the same twice, of one client.
    pub number: u64,
}

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    /// The device works with these positions; else it was being reset.
    runs: bool,
    positions: Positions,
    /// Bytes of standard input that programs have, and at which count it ends.
    input: u64,
    end: u64,
    /// Bit per [`Out`]: nobody at the host takes it any more.
    closed: u8,
    /// Signals for the foreground and for the first program, a bit each.
    signals: [u64; 2],
    /// What was told last, and in which place of the table that is.
    request: Request,
    result: u32,
    place: u16,
}

impl Kept {
    const FRESH: Kept = Kept {
        runs: false,
        positions: Positions { given: [0; ports::OUTS], taken: [Position { taken: 0, offset: 0 }; ports::INS] },
        input: 0,
        end: NO_END,
        closed: 0,
        signals: [0; 2],
        request: Request { client: 0, number: 0 },
        result: 0,
        place: 0,
    };

    fn encode(&self) -> [u8; PLACE_BYTES] {
        let mut record = [0; PLACE_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            record[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for word in
            [MAGIC, self.input, self.end, self.signals[0], self.signals[1], self.request.client, self.request.number]
        {
            put(&word.to_le_bytes());
        }
        put(&self.result.to_le_bytes());
        put(&self.place.to_le_bytes());
        self.positions.given.iter().for_each(|count| put(&count.to_le_bytes()));
        for position in self.positions.taken {
            put(&position.taken.to_le_bytes());
            put(&position.offset.to_le_bytes());
        }
        put(&[self.closed, self.runs.into()]);
        let sum = checksum(record[..PLACE_SUM_AT].iter().copied());
        record[PLACE_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        record
    }

    fn decode(record: &[u8; PLACE_BYTES]) -> Option<Kept> {
        let (content, sum) = record.split_at(PLACE_SUM_AT);
        if sum != checksum(content.iter().copied()).to_le_bytes() {
            return None;
        }
        let mut at = 0;
        let mut number = |bytes: usize| {
            let value = record[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            at += bytes;
            value
        };
        if number(8) != MAGIC {
            return None;
        }
        let mut kept = Kept { input: number(8), end: number(8), ..Kept::FRESH };
        kept.signals = [number(8), number(8)];
        kept.request = Request { client: number(8), number: number(8) };
        (kept.result, kept.place) = (number(4) as u32, number(2) as u16);
        kept.positions.given.iter_mut().for_each(|count| *count = number(2) as u16);
        for position in &mut kept.positions.taken {
            *position = Position { taken: number(2) as u16, offset: number(2) as u16 };
        }
        (kept.closed, kept.runs) = (number(1) as u8, number(1) != 0);
        Some(kept)
    }
}

/// What the host says on the control port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// What encrypts the disk: to be kept, and told to nobody but who encrypts.
    Key(&'a [u8]),
    /// The window of the terminal has that size.
    Window {
        /// Its height.
        rows: u16,
        /// Its width.
        columns: u16,
    },
}

/// How the device was found.
pub type Found = takeover::Found<Why>;

/// Why a device was reset that had a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// What is kept is damaged, or was never written.
    Record,
    /// The console died while it reset the device.
    Starting,
    /// The device is not as the console left it.
    Device(NotRunning),
}

/// See the module's head.
pub struct Streams {
    ports: RefCell<Ports<Box<dyn Transport>, Rc<dyn Memory>>>,
    memory: Rc<dyn Memory>,
    kept: Cell<Kept>,
    /// The place that counts.
    choice: Cell<usize>,
    broken: Cell<bool>,
    /// Signals wanted again since [`Streams::next_signal`] gave them.
    again: Cell<[u64; 2]>,
}

impl Streams {
    /// Over a device and the region, which a device sees at `physical`. `recovers`: what a
    /// predecessor kept there counts.
    pub fn start(
        transport: Box<dyn Transport>,
        memory: Rc<dyn Memory>,
        physical: u64,
        recovers: bool,
        owner: &mut dyn DeviceOwner,
    ) -> Result<(Streams, Found), StartError> {
        memory.read(REGION_BYTES - 1, &mut [0]).map_err(|OutOfBounds| StartError::Region)?;
        let recovered = recovered(&*memory).filter(|_| recovers);
        let (choice, kept) = recovered.unwrap_or((0, Kept::FRESH));
        let streams = Streams {
            ports: RefCell::new(Ports::new(transport, memory.clone())),
            memory,
            kept: Cell::new(kept),
            choice: Cell::new(choice),
            broken: Cell::new(false),
            again: Cell::default(),
        };
        if recovered.is_some() {
            // A predecessor may have died over it.
            streams.remember_told(&kept);
        }
        let is_known = recovered.is_some() && streams.damaged_told().next().is_none();
        let found = match kept.runs {
            _ if !recovers => Found::Fresh,
            _ if !is_known => Found::Reset(Why::Record),
            false => Found::Reset(Why::Starting),
            true => match streams.ports.borrow_mut().adopt(physical, &kept.positions, owner) {
                Ok(()) => Found::Running,
                Err(why) => Found::Reset(Why::Device(why)),
            },
        };
        if found != Found::Running {
            // From here on positions say nothing of the device.
            let fresh = Kept { runs: false, positions: Positions::default(), ..kept };
            streams.keep(fresh);
            let nothing = [0; TOLD_BYTES];
            for place in streams.damaged_told() {
                let _ = streams.memory.write(TOLD_AT + place * TOLD_BYTES, &nothing);
            }
            streams.ports.borrow_mut().start(physical, owner)?;
            streams.keep(Kept { runs: true, ..fresh });
            streams.ports.borrow_mut().open(&fresh.positions, owner)?;
        }
        Ok((streams, found))
    }

    /// Makes `kept` what counts, and then true.
    fn commit(&self, kept: Kept) {
        let is_told = kept.request != self.kept.get().request;
        self.keep(kept);
        if is_told {
            self.remember_told(&kept);
        }
        self.ports.borrow_mut().publish(&kept.positions);
    }

    /// The place that counts stays whole until the other one is.
    fn keep(&self, kept: Kept) {
        let choice = 1 - self.choice.get();
        // In bounds: `start` looked.
        let _ = self.memory.write(PLACES_AT[choice], &kept.encode());
        let _ = self.memory.store_u32(CHOICE_AT, CHOICES[choice]);
        self.choice.set(choice);
        self.kept.set(kept);
    }

    fn remember_told(&self, kept: &Kept) {
        let mut told = [0; TOLD_BYTES];
        told[..8].copy_from_slice(&kept.request.client.to_le_bytes());
        told[8..16].copy_from_slice(&kept.request.number.to_le_bytes());
        told[16..20].copy_from_slice(&kept.result.to_le_bytes());
        let sum = told_sum(&told);
        told[TOLD_SUM_AT..].copy_from_slice(&sum);
        let _ = self.memory.write(TOLD_AT + usize::from(kept.place) % TOLD_MAX * TOLD_BYTES, &told);
    }

    /// Places of results that are not as they were written: who asks again for one would be told
    /// wrong, or have it done twice.
    fn damaged_told(&self) -> impl Iterator<Item = usize> {
        let is_damaged = |told: [u8; TOLD_BYTES]| told != [0; TOLD_BYTES] && told[TOLD_SUM_AT..] != told_sum(&told);
        (0..TOLD_MAX).filter(move |place| is_damaged(self.told(*place)))
    }

    fn told(&self, place: usize) -> [u8; TOLD_BYTES] {
        let mut told = [0; TOLD_BYTES];
        let _ = self.memory.read(TOLD_AT + place * TOLD_BYTES, &mut told);
        told
    }

    fn told_at(&self, place: usize) -> (Request, u32) {
        let told = self.told(place);
        let number = |at: usize| told[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        (Request { client: number(0), number: number(8) }, number(16) as u32)
    }

    /// Where the client's last result is: its client number is its place, so that who comes after
    /// it writes over it.
    fn place(request: Request) -> usize {
        request.client as usize % TOLD_MAX
    }

    /// What a request came to that was carried out before.
    pub fn result(&self, request: Option<Request>) -> Option<u32> {
        let request = request?;
        let (told, result) = self.told_at(Streams::place(request));
        (told == request).then_some(result)
    }

    fn with_result(kept: &mut Kept, request: Option<Request>, result: usize) {
        if let Some(request) = request {
            (kept.request, kept.result) = (request, result as u32);
            kept.place = Streams::place(request) as u16;
        }
    }

    fn believed<R: Default>(&self, outcome: Result<R, Broken>) -> R {
        outcome.unwrap_or_else(|Broken| {
            self.broken.set(true);
            R::default()
        })
    }

    /// Has the device said something impossible? Nothing comes or goes from then on.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Writes as much as there is room for, as `request` with that result for its client: bytes of
    /// its own that these stand for. Gives how many went.
    pub fn write(&self, out: Out, bytes: &[u8], request: Option<Request>, result: impl Fn(usize) -> usize) -> usize {
        let mut kept = self.kept.get();
        let outcome = self.ports.borrow().fill(&mut kept.positions, out, bytes);
        let done = self.believed(outcome);
        if done > 0 {
            Streams::with_result(&mut kept, request, result(done));
            self.commit(kept);
        }
        done
    }

    /// Bytes that a write takes now.
    pub fn room(&self, out: Out) -> usize {
        let outcome = self.ports.borrow().room(&self.kept.get().positions, out);
        self.believed(outcome)
    }

    /// Is nothing of it on its way any more, or nobody there to take it?
    pub fn is_drained(&self, out: Out) -> bool {
        let outcome = self.ports.borrow().is_drained(&self.kept.get().positions, out);
        self.is_closed(out) || outcome != Ok(false)
    }

    /// Has the host closed it?
    pub fn is_closed(&self, out: Out) -> bool {
        self.kept.get().closed & 1 << out as u8 != 0
    }

    /// Takes at most `wanted` bytes of standard input for `request`, if `hand_over` could hand them
    /// over. `None`: there are none yet. Empty: there will be none.
    pub fn take_input(
        &self,
        wanted: usize,
        request: Option<Request>,
        hand_over: impl FnOnce(&[u8]) -> bool,
    ) -> Option<usize> {
        let mut kept = self.kept.get();
        let mut bytes = vec![0; wanted.min(self.input_held())];
        let outcome = self.ports.borrow().peek(&mut kept.positions, In::Input, &mut bytes);
        let count = self.believed(outcome);
        if count == 0 {
            return (self.input_ended() || wanted == 0).then_some(0);
        }
        if !hand_over(&bytes[..count]) {
            return Some(0);
        }
        kept.input += count as u64;
        Streams::with_result(&mut kept, request, count);
        self.commit(kept);
        Some(count)
    }

    /// Bytes of standard input that a read gives now.
    pub fn input_held(&self) -> usize {
        let outcome = self.ports.borrow().held(&self.kept.get().positions, In::Input);
        self.believed(outcome)
    }

    /// Has all of standard input been read?
    pub fn input_ended(&self) -> bool {
        let kept = self.kept.get();
        kept.input >= kept.end || self.broken.get()
    }

    /// Hands what was typed to `receive`, which says how much it took.
    pub fn take_keys(&self, receive: impl FnOnce(&[u8]) -> usize) -> usize {
        let kept = self.kept.get();
        let mut bytes = [0; 256];
        let outcome = self.ports.borrow().peek(&mut { kept.positions }, In::Keys, &mut bytes);
        let count = self.believed(outcome);
        let taken = if count == 0 { 0 } else { receive(&bytes[..count]) };
        // What it did may have changed more.
        let mut kept = self.kept.get();
        let outcome = self.ports.borrow().peek(&mut kept.positions, In::Keys, &mut bytes[..taken]);
        if self.believed(outcome) > 0 {
            self.commit(kept);
        }
        taken
    }

    /// Takes what the host says, one line at a time, and has the caller carry a word out: again if
    /// we die over it. False when there is no whole line. Of a key nothing is left here.
    pub fn take_word(&self, carry_out: impl FnOnce(Word<'_>)) -> bool {
        let mut bytes = Zeroizing::new([0; LINE_MAX]);
        let mut positions = self.kept.get().positions;
        let outcome = self.ports.borrow().peek(&mut positions, In::Control, &mut bytes[..]);
        let count = self.believed(outcome);
        let length = match bytes[..count].iter().position(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            // No line is as long; what it begins with goes.
            None if count == LINE_MAX => count,
            None => return false,
        };
        let digits = bytes[..length].strip_prefix(KEY_WORD.as_bytes());
        // Blanks are of a predecessor that died while it wiped one.
        if digits.is_some() || bytes[0] == b' ' {
            if let Some((key, count)) = digits.and_then(key) {
                carry_out(Word::Key(&key[..count]));
            }
            self.drop_key(&mut bytes[..length]);
            return true;
        }
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let mut words = line.split_ascii_whitespace();
        let command = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        if command == "window" {
            let mut size = || number().and_then(|value| u16::try_from(value).ok()).unwrap_or(0);
            carry_out(Word::Window { rows: size(), columns: size() });
        }
        // That may have changed more.
        let mut kept = self.kept.get();
        let outcome = self.ports.borrow().peek(&mut kept.positions, In::Control, &mut bytes[..length]);
        self.believed(outcome);
        match command {
            "end" => kept.end = number().unwrap_or(0),
            "closed-output" => kept.closed |= 1 << Out::Output as u8,
            "closed-error" => kept.closed |= 1 << Out::Error as u8,
            "closed-screen" => kept.closed |= 1 << Out::Screen as u8,
            "signal-foreground" => self.want(&mut kept, 0, number()),
            "signal-first" => self.want(&mut kept, 1, number()),
            _ => {}
        }
        self.commit(kept);
        true
    }

    /// Wipes a line with a key from its beginning, and takes what is left of it. Who dies in
    /// between leaves one that begins with blanks.
    fn drop_key(&self, line: &mut [u8]) {
        line[..].zeroize();
        line.fill(b' ');
        if let Some(end) = line.last_mut() {
            *end = b'\n';
        }
        let mut kept = self.kept.get();
        let outcome = self.ports.borrow().overwrite(&kept.positions, In::Control, line);
        self.believed(outcome);
        let outcome = self.ports.borrow().peek(&mut kept.positions, In::Control, line);
        self.believed(outcome);
        self.commit(kept);
    }

    /// Wants a signal sent to the foreground; a successor still does.
    pub fn raise(&self, number: u8) {
        let mut kept = self.kept.get();
        self.want(&mut kept, 0, Some(number.into()));
        self.commit(kept);
    }

    fn want(&self, kept: &mut Kept, whose: usize, number: Option<u64>) {
        let mut again = self.again.get();
        again[whose] |= bit(number);
        kept.signals[whose] |= bit(number);
        self.again.set(again);
    }

    /// Is there one to be sent?
    pub fn has_signal(&self) -> bool {
        self.kept.get().signals != [0; 2]
    }

    /// The next signal that is to be sent, and whether to the first program alone; it stays
    /// until [`Streams::signal_sent`].
    pub fn next_signal(&self) -> Option<(u8, bool)> {
        let [foreground, first] = self.kept.get().signals.map(u64::checked_ilog2);
        let (number, is_first) = foreground.map(|number| (number, false)).or(first.map(|number| (number, true)))?;
        let mut again = self.again.get();
        again[usize::from(is_first)] &= !(1 << number);
        self.again.set(again);
        Some((number as u8, is_first))
    }

    /// It was sent, or nobody is there to hear it.
    pub fn signal_sent(&self, (number, first): (u8, bool)) {
        let mut kept = self.kept.get();
        if self.again.get()[usize::from(first)] & 1 << number == 0 {
            kept.signals[usize::from(first)] &= !(1 << number);
            self.commit(kept);
        }
    }

    /// Answers an interrupt at the device.
    pub fn acknowledge(&self) {
        self.ports.borrow_mut().acknowledge();
    }
}

/// The bytes that a line's digits are, and how many; nothing if they are no whole bytes.
fn key(digits: &[u8]) -> Option<(Zeroizing<[u8; KEY_BYTES_MAX]>, usize)> {
    let digits = digits.trim_ascii();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut key = Zeroizing::new([0; KEY_BYTES_MAX]);
    let (pairs, rest) = digits.as_chunks();
    if pairs.len() > KEY_BYTES_MAX || !rest.is_empty() || pairs.is_empty() {
        return None;
    }
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    Some((key, pairs.len()))
}

fn bit(number: Option<u64>) -> u64 {
    number.filter(|number| (1..64).contains(number)).map_or(0, |number| 1 << number)
}

/// The place that counts, and what is kept there; `None` if that is damaged, or was never written.
fn recovered(memory: &dyn Memory) -> Option<(usize, Kept)> {
    // In bounds: `start` looked.
    let word = memory.load_u32(CHOICE_AT).ok()?;
    let choice = CHOICES.iter().position(|choice| *choice == word)?;
    let mut record = [0; PLACE_BYTES];
    memory.read(PLACES_AT[choice], &mut record).ok()?;
    Some((choice, Kept::decode(&record)?))
}

fn told_sum(told: &[u8; TOLD_BYTES]) -> [u8; TOLD_BYTES - TOLD_SUM_AT] {
    (checksum(told[..TOLD_SUM_AT].iter().copied()) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back() {
        let mut kept = Kept { input: 1 << 40, end: 7, closed: 5, signals: [4, 1 << 15], ..Kept::FRESH };
        (kept.request, kept.result, kept.place) = (Request { client: 9, number: 1 << 60 }, 4096, 9);
        kept.positions.given = [1, 2, 3, 0xffff];
        kept.positions.taken[1] = Position { taken: 77, offset: 4095 };
        kept.runs = true;
        assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        for at in 0..PLACE_BYTES {
            let mut record = kept.encode();
            record[at] ^= 0x10;
            assert_eq!(Kept::decode(&record), None, "byte {at}");
        }
        assert_eq!(Kept::decode(&[0; PLACE_BYTES]), None);
    }
}
