//! A hot file of `volume` over cores (fos section 3.4): each core has a copy of it, and reads that.
//!
//! The copy lies in the core's own channel to the server, and behind it the word by which the
//! server says that it is over (`read_and_keep`, decision 96). A reader looks at the word, and asks
//! anew if it is. `read-kept`: nobody writes. `read-written`: the last core now and then writes a
//! new version of a piece, and `read-changing`: often. `read-asked`, as a control: the server is
//! asked for each piece.
//!
//! Who writes publishes a version once the server has answered: who begins to read from then on has
//! to find it, or a newer one. Each word of a piece has its number, its version and the word's
//! place. Lines of the region `load`: 80 the versions of pieces that were published, 96 on what all
//! counted.

use core::fmt::Debug;
use core::sync::atomic::Ordering;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use channel::Bulk;
use contracts::BulkSpan;
use contracts::descriptions::{Copied, DescriptionId, DescriptionsClient, copy_words};
use contracts::files::{FilesClient, Name, open};
use runtime::Start;

use super::{FINISHED, Room};
use crate::sample::Stopwatch;

/// The server, and the file there.
const SERVER: &str = "volume";
const PATH: &str = "/hot";
const PIECE_BYTES: usize = 4096;
/// Pieces of the file: all that a channel's bulk area has room for, but one, which is for what is
/// written and for what is asked for by itself.
const PIECES: u64 = 15;
const ASIDE: u32 = PIECES as u32 * PIECE_BYTES as u32;
const PUBLISHED: u64 = 80;
const READS: u64 = 96;
const NEWER: u64 = 97;
const WRONG: u64 = 98;
const COPIES: u64 = 99;
/// Reads of a core in a row.
const TURNS: u64 = 500;
/// Reads of the writer's between two writes, and of a core in that row.
const WRITTEN_EVERY: u64 = 1000;
const TURNS_WRITTEN: u64 = 2 * WRITTEN_EVERY;
const CHANGING_EVERY: u64 = 10;
/// Of a word of a piece: its place, below the version, below the piece's number.
const VERSION_SHIFT: u32 = 16;
const PIECE_SHIFT: u32 = 48;

/// From where a row's reads are, and who writes meanwhile.
#[derive(Clone, Copy)]
enum Reads {
    /// The core's copy.
    Copy,
    /// The same; the last core writes each time that it has read so many pieces.
    CopyOfWritten(u64),
    /// The server.
    Server,
}

/// What a core has of the file.
struct File {
    descriptions: DescriptionsClient,
    bulk: Bulk,
    id: DescriptionId,
    /// What was read last, or is to be written.
    page: Box<[u8; PIECE_BYTES]>,
    turn: u64,
    random: u64,
    written: u64,
    copies: u64,
    reads: u64,
    /// Reads that found a newer version than the last one that was published before.
    newer: u64,
    /// What was older, or of two versions or places.
    wrong: u64,
}

fn fill(page: &mut [u8], piece: u64, version: u64) {
    let first = piece << PIECE_SHIFT | version << VERSION_SHIFT;
    (first..).zip(page.chunks_exact_mut(8)).for_each(|(value, word)| word.copy_from_slice(&value.to_le_bytes()));
}

/// The version of a piece, if it is that and whole.
fn version(page: &[u8; PIECE_BYTES], piece: u64) -> Option<u64> {
    let mut words = page.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let first = words.next()?;
    let is_whole = first >> PIECE_SHIFT == piece && (first + 1..).zip(words).all(|(value, word)| value == word);
    is_whole.then_some(first >> VERSION_SHIFT & ((1 << (PIECE_SHIFT - VERSION_SHIFT)) - 1))
}

fn failed<T>(what: &'static str) -> impl Fn(T) -> String
where
    T: Debug,
{
    move |why| format!("{what} gives {why:?}")
}

impl File {
    /// The last core makes the file, then all open it.
    async fn open(start: &Start, room: &mut Room) -> Result<File, String> {
        let no_channel = |_| format!("no channel to {SERVER}: correct system/*.toml");
        let files = start.client::<FilesClient>(SERVER).map_err(no_channel)?;
        let descriptions = start.client::<DescriptionsClient>(SERVER).map_err(no_channel)?;
        let name = || Name { directory: None, path: PATH.into(), process: 0, owner: (0, 0) };
        let writes = room.core + 1 == room.cores;
        if !writes {
            room.meet();
        }
        let flags = if writes { open::READ | open::WRITE | open::CREATE } else { open::READ };
        let opened = files.open(name(), flags, 0o600).await.map_err(failed("open"))?;
        let mut file = File {
            bulk: descriptions.bulk(),
            descriptions,
            id: opened.id,
            page: Box::new([0; PIECE_BYTES]),
            turn: 0,
            random: room.core + 1,
            written: 0,
            copies: 0,
            reads: 0,
            newer: 0,
            wrong: 0,
        };
        if writes {
            for _ in 0..PIECES {
                file.write(room).await?;
            }
            // The disk has nothing to do while others measure.
            files.synchronize(file.id, true).await.map_err(failed("synchronize"))?;
            room.meet();
        }
        file.copy().await.map(|()| file)
    }

    /// Writes the next version of the next piece, and publishes its number once that is answered.
    async fn write(&mut self, room: &Room) -> Result<(), String> {
        let piece = self.written % PIECES;
        self.written += 1;
        let published = room.lines.word(PUBLISHED + piece, 0);
        let version = published.load(Ordering::Relaxed) + 1;
        fill(&mut self.page[..], piece, version);
        self.bulk.write(ASIDE as usize, &self.page[..]).map_err(failed("its bulk area"))?;
        let span = BulkSpan { offset: ASIDE, length: PIECE_BYTES as u32 };
        match self.descriptions.write(self.id, span, Some(piece * PIECE_BYTES as u64), true).await {
            Ok(count) if count == span.length => published.store(version, Ordering::Release),
            other => return Err(failed("write")(other)),
        }
        Ok(())
    }

    /// Where the words of the copy lie.
    fn words(&self) -> usize {
        self.bulk.len() - copy_words::AREA_BYTES as usize
    }

    /// Has the server copy the file.
    async fn copy(&mut self) -> Result<(), String> {
        let (span, words) = (BulkSpan { offset: 0, length: ASIDE }, self.words() as u32);
        self.copies += 1;
        match self.descriptions.read_and_keep(self.id, span, Some(0), words).await {
            Ok(Copied { from: 0, count: ASIDE }) => Ok(()),
            other => Err(failed("read_and_keep")(other)),
        }
    }

    /// Reads a piece by chance.
    async fn read(&mut self, room: &Room, how: Reads) -> Result<(), String> {
        self.turn += 1;
        if let Reads::CopyOfWritten(every) = how
            && room.core + 1 == room.cores
            && self.turn.is_multiple_of(every)
        {
            self.write(room).await?;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let piece = self.random % PIECES;
        // Acquire: what is read from now on is this version, or a newer one.
        let published = room.lines.word(PUBLISHED + piece, 0).load(Ordering::Acquire);
        let place = match how {
            Reads::Server => self.ask(piece).await?,
            _ => {
                if self.bulk.load_u32(self.words() + copy_words::OVER) != Ok(0) {
                    self.copy().await?;
                }
                piece as usize * PIECE_BYTES
            }
        };
        self.bulk.read(place, &mut self.page[..]).map_err(failed("its bulk area"))?;
        let found = version(&self.page, piece);
        self.reads += 1;
        self.newer += u64::from(found > Some(published));
        self.wrong += u64::from(found < Some(published));
        Ok(())
    }

    /// Has the server read a piece; where that lies.
    async fn ask(&mut self, piece: u64) -> Result<usize, String> {
        let span = BulkSpan { offset: ASIDE, length: PIECE_BYTES as u32 };
        match self.descriptions.read(self.id, span, Some(piece * PIECE_BYTES as u64), true).await {
            Ok(count) if count == span.length => Ok(ASIDE as usize),
            other => Err(failed("read")(other)),
        }
    }

    /// As [`Room::row`], of reads that may have to wait for the server.
    async fn row(&mut self, room: &mut Room, name: &str, turns: u64, how: Reads) -> Result<(), String> {
        self.turn = 0;
        room.meet();
        for _ in 0..turns {
            self.read(room, how).await?;
        }
        let watch = Stopwatch::start(name, turns);
        for _ in 0..turns {
            self.read(room, how).await?;
        }
        watch.stop();
        room.finished += room.cores;
        room.line(FINISHED).fetch_add(1, Ordering::AcqRel);
        while room.line(FINISHED).load(Ordering::Acquire) < room.finished {
            self.read(room, how).await?;
        }
        Ok(())
    }

    /// What all counted.
    fn tell(&self, room: &mut Room) {
        let own = [(READS, self.reads), (NEWER, self.newer), (WRONG, self.wrong), (COPIES, self.copies)];
        own.into_iter().for_each(|(line, count)| _ = room.line(line).fetch_add(count, Ordering::AcqRel));
        room.meet();
        if room.core > 0 {
            return;
        }
        let [reads, newer, wrong, copies] =
            [READS, NEWER, WRONG, COPIES].map(|line| room.line(line).load(Ordering::Acquire));
        let versions: u64 = (0..PIECES).map(|piece| room.line(PUBLISHED + piece).load(Ordering::Acquire)).sum();
        if wrong > 0 {
            return runtime::log!(
                "load failed: {wrong} of {reads} reads of a file found a piece older than published, or torn"
            );
        }
        runtime::log!(
            "files: {reads} reads of {} cores from {copies} copies, {versions} versions: all whole, none older than \
             the one published before the read, {newer} newer",
            room.cores
        );
    }
}

async fn all(room: &mut Room, start: &Start) -> Result<(), String> {
    let mut file = File::open(start, room).await?;
    file.row(room, "files/read-kept", TURNS, Reads::Copy).await?;
    file.row(room, "files/read-written", TURNS_WRITTEN, Reads::CopyOfWritten(WRITTEN_EVERY)).await?;
    file.row(room, "files/read-changing", TURNS, Reads::CopyOfWritten(CHANGING_EVERY)).await?;
    file.row(room, "files/read-asked", TURNS, Reads::Server).await?;
    file.tell(room);
    Ok(())
}

/// All rows. A core that cannot go on says so and stays away, so that the others' wait is noticed.
pub(super) async fn rows(room: &mut Room, start: &Start) {
    if let Err(why) = all(room, start).await {
        runtime::log!("load failed: {why}");
        core::future::pending().await
    }
}
