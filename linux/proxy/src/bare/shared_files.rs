//! Shared mappings of files (decision 79): making them, bringing what is stored in them to the
//! file, and to them what calls do to the file.
//!
//! Invariants: what is mapped as a piece is memory for all who have it, and the file follows: what
//! was stored is written before the mapping goes or can no longer be written, and before this
//! process reads of the file. Pieces are made, given back and brought to the file by one thread at
//! a time, who has the turn.

use abi::Handle;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use channel::CallError;
use contracts::BulkSpan;
use contracts::descriptions::{DescriptionError, DescriptionId, Whence};
use contracts::files::{Hold, Lock, LockKind, OF_VOLUME, PROC_DEVICE, VOLUME_DEVICE, open as how};
use contracts::shared_memory::PART_PAGES;
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::memory::{Area, PAGE, mark, protection, round_up};
use personality::pieces::{Piece, Run, Stretch, next_difference};

use super::errors::{Failure, Outcome};
use super::fd::close_id;
use super::input_output::{read_raw, status_of};
use super::mapping::{self, Place};
use super::paging;
use super::proxy::{Turn, proxy};
use super::syscall::{log_once, log_refused};
use super::system_v;
use super::unnamed;
use super::user::{self, Source, Target, with_state};

/// The number of the turn at pieces, past those at bulk areas.
const TURN: u32 = 31;
const LONGEST_RUN: u64 = abi::layout::SEGMENT_PAGES_MAX * PAGE;
/// How often bytes are claimed that others have at one moment and not at the next.
const CLAIMS_MAX: usize = 100;
/// Bytes brought from or to a file at a time.
const PART_BYTES: u64 = 64 << 10;
/// Numbers of files that are remembered by description.
const KNOWN_MAX: usize = 256;

/// Are there pieces, or is one being made? If not, a program pays for nothing here.
pub fn is_active() -> bool {
    with_state(|state| !state.pieces.is_empty()) || proxy().is_taken(TURN)
}

/// The turn, if there is anything to keep in step.
pub async fn turn_if_active() -> Option<Turn> {
    if is_active() { Some(proxy().turn(TURN).await) } else { None }
}

/// The pages that a call means by an address and a length.
fn pages(start: u64, bytes: u64) -> Range<u64> {
    start & !(PAGE - 1)..round_up(start.saturating_add(bytes)).unwrap_or(u64::MAX)
}

/// Does a piece lie in those pages?
pub fn lies_in(start: u64, bytes: u64) -> bool {
    with_state(|state| !state.pieces.at(&state.memory, pages(start, bytes), |_| true).is_empty())
}

/// The number of the file that a description names; 0 for what lies in no store. A description
/// names the same one for as long as it lives, and its id is never used again.
async fn inode_of(id: DescriptionId) -> Result<u64, Failure> {
    if let Some(inode) = proxy().inodes.borrow().get(&id) {
        return Ok(*inode);
    }
    let status = status_of(id).await?;
    let inode = match status.device {
        PROC_DEVICE => 0,
        VOLUME_DEVICE => status.inode | OF_VOLUME,
        _ => status.inode,
    };
    let mut known = proxy().inodes.borrow_mut();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(id, inode);
    Ok(inode)
}

fn lock_of(bytes: &Range<u64>, hold: Hold, memory: u64) -> Lock {
    let process = with_state(|state| state.process);
    Lock { kind: LockKind::Mapped(memory), hold: Some(hold), from: bytes.start, to: bytes.end, process }
}

/// Others have mapped them, and they cannot be had beside these.
fn refused() -> Failure {
    log_refused(9, "mmap: bytes of that file are memory of another program: ENODEV");
    Errno::ENODEV.into()
}

/// A description to claim bytes with; given back if they do not become a piece.
struct Claim(DescriptionId);

impl Drop for Claim {
    fn drop(&mut self) {
        close_id(server::of_file(self.0), self.0);
    }
}

/// Claims bytes of a file from `wanted.start` on: those that nobody has, with new memory, or those
/// of a piece of others, when they have filled it. Tells whether the memory is new, and so to be
/// filled.
async fn claim(file: DescriptionId, inode: u64, wanted: Range<u64>) -> Result<(Piece, bool), Failure> {
    let files = proxy().files_of(file)?;
    let claim = Claim(files.reopen(file, how::READ | how::WRITE | how::MAPPING).await?.id);
    for _ in 0..CLAIMS_MAX {
        let first = files.blocking_lock(claim.0, lock_of(&wanted, Hold::Exclusive, 0)).await?;
        let (bytes, held) = match first {
            Some(Lock { kind: LockKind::Mapped(held), from, to, .. }) if from <= wanted.start => (from..to, held),
            Some(other) => (wanted.start..other.from, 0),
            None => (wanted.clone(), 0),
        };
        let is_new = held == 0;
        let done = if is_new { claim_new(&claim, &bytes).await } else { join(&claim, &bytes, held).await };
        if let Some(common) = done? {
            let piece = Piece { common, description: claim.0, inode, from: bytes.start, to: bytes.end };
            core::mem::forget(claim);
            return Ok((piece, is_new));
        }
    }
    Err(refused())
}

/// Claims bytes with new memory; gives its number. `None` if others were faster.
async fn claim_new(claim: &Claim, bytes: &Range<u64>) -> Result<Option<u64>, Failure> {
    let number = system_v::lend(bytes.end - bytes.start).await?;
    claim_with(claim, lock_of(bytes, Hold::Exclusive, number), number, DescriptionError::WouldBlock).await
}

/// Claims bytes with the memory that others have, when it is filled. `None` if they gave it back
/// meanwhile. They give the memory back after their claims: who has it first never leaves a claim
/// to memory that is gone, which others would then look for.
async fn join(claim: &Claim, bytes: &Range<u64>, number: u64) -> Result<Option<u64>, Failure> {
    if proxy().process.join_memory(number).await.is_err() {
        return Ok(None);
    }
    claim_with(claim, lock_of(bytes, Hold::Shared, number), number, DescriptionError::NotFound).await
}

/// Takes a lock on bytes for memory that this process has, and gives that back if it cannot have
/// the lock. `None` for `lost`: others were faster. Who shares waits until it is filled.
async fn claim_with(claim: &Claim, lock: Lock, number: u64, lost: DescriptionError) -> Result<Option<u64>, Failure> {
    let waits = lock.hold == Some(Hold::Shared);
    let done = proxy().files_of(claim.0)?.lock(claim.0, lock, waits).await;
    if done.is_err() {
        let _ = proxy().process.detach_segment(number);
    }
    match done {
        Err(CallError::Server(error)) if error == lost => Ok(None),
        other => Ok(other.map(|()| Some(number))?),
    }
}

/// Pieces for all bytes of a file; gives those that are to be filled. What was claimed before a
/// failure is a piece without an area.
async fn claim_all(
    file: DescriptionId,
    inode: u64,
    mut wanted: Range<u64>,
    new: &mut Vec<Piece>,
) -> Result<(), Failure> {
    while wanted.start < wanted.end {
        with_state(|state| state.pieces.room(1))?;
        let (piece, is_new) = claim(file, inode, wanted.clone()).await?;
        with_state(|state| state.pieces.add(piece))?;
        if is_new {
            new.push(piece);
        }
        wanted.start = piece.to;
    }
    Ok(())
}

/// mmap of a file with MAP_SHARED. By a descriptor that can write, bytes become pieces, whatever
/// access is asked for now; by another one they are a copy, where they are nobody's pieces.
pub async fn map(found: &Description, place: Place, access: u32, offset: u64) -> Outcome {
    let _turn = proxy().turn(TURN).await;
    let mut new = Vec::new();
    let mapped = map_pieces(found, place, access, offset, &mut new).await;
    if mapped.is_err() {
        drop_unused().await;
    }
    mapped
}

async fn map_pieces(found: &Description, place: Place, access: u32, offset: u64, new: &mut Vec<Piece>) -> Outcome {
    let inode = inode_of(found.id).await?;
    // What goes may be a piece of the same bytes.
    take_away(place.replaced()).await?;
    let end = offset.checked_add(place.bytes).ok_or(Errno::EOVERFLOW)?;
    let is_sealed = found.flags & O_ACCMODE == O_RDWR && unnamed::is_sealed(found).await?;
    if is_sealed && access & protection::WRITE != 0 {
        return Err(Errno::EPERM.into());
    }
    let is_writer = found.flags & O_ACCMODE == O_RDWR && !is_sealed;
    let runs = || with_state(|state| state.pieces.runs(inode, offset..end, LONGEST_RUN));
    for run in runs().iter().filter(|run| run.piece.is_none()) {
        let is_claimed = async || {
            let lock = lock_of(&run.bytes, Hold::Shared, 0);
            let other = proxy().files_of(found.id)?.blocking_lock(found.id, lock).await?;
            Ok::<bool, Failure>(other.is_some())
        };
        if is_writer || inode != 0 && is_claimed().await? {
            claim_all(found.id, inode, run.bytes.clone(), new).await?;
        }
    }
    let runs = runs();
    let mut parts = Parts::default();
    for run in &runs {
        parts.get(run).await?;
    }
    let size = status_of(found.id).await?.size;
    let is_copied = !is_writer && runs.iter().any(|run| run.piece.is_none());
    let covered = round_up(size.saturating_sub(offset)).unwrap_or(u64::MAX).min(place.bytes);
    let file = if is_copied { paging::file(found.id, covered, access).await } else { None };
    let start = place.take()?;
    let is_new = |run: &Run| run.piece.map_or(file.is_none(), |piece| new.contains(&piece));
    let laid = lay(&runs, (start, offset), (size, file.as_ref()), (access, &is_new), &mut parts);
    let made = match laid {
        Ok(()) => fill(found.id, &runs, (start, offset), (access, &is_new)).await,
        Err(errno) => Err(errno.into()),
    };
    let shared = match made {
        Ok(()) => share(new).await,
        failed => failed,
    };
    if let Err(failure) = shared {
        mapping::unmap(start, start + place.bytes)?;
        return Err(failure);
    }
    if !is_writer {
        with_state(|state| state.memory.mark(start, start + place.bytes, [0, mark::SEALED]))?;
    }
    Ok(start)
}

/// Lets others have pieces, which are filled now.
async fn share(pieces: &[Piece]) -> Result<(), Failure> {
    for piece in pieces {
        let lock = lock_of(&(piece.from..piece.to), Hold::Shared, piece.common);
        proxy().files_of(piece.description)?.lock(piece.description, lock, false).await?;
    }
    Ok(())
}

/// Handles of parts of pieces that are not mapped yet, by their numbers.
#[derive(Default)]
struct Parts(BTreeMap<u64, Handle>);

impl Drop for Parts {
    fn drop(&mut self) {
        self.0.values().for_each(|handle| _ = sys::cap_drop(*handle));
    }
}

/// Bytes of a run in the parts of its piece: a part's number, the first page in it, and the bytes.
fn parts_of(run: &Run, piece: &Piece) -> impl Iterator<Item = (u64, u64, Range<u64>)> {
    const PART_BYTES: u64 = PART_PAGES * PAGE;
    let (from, common, bytes) = (piece.from, piece.common, run.bytes.clone());
    let parts = (bytes.start - from) / PART_BYTES..(bytes.end - from).div_ceil(PART_BYTES);
    parts.map(move |part| {
        let first = from + part * PART_BYTES;
        let bytes = bytes.start.max(first)..bytes.end.min(first + PART_BYTES);
        (common + part, (bytes.start - first) / PAGE, bytes)
    })
}

impl Parts {
    /// Takes what a run needs that is not mapped.
    async fn get(&mut self, run: &Run) -> Result<(), Failure> {
        let Some(piece) = run.piece else { return Ok(()) };
        for (common, ..) in parts_of(run, &piece) {
            let is_there = with_state(|state| state.memory.segment_of(common)).is_some();
            if !is_there && !self.0.contains_key(&common) {
                let handle = proxy().process.segment_part(piece.common, (common - piece.common) as u32).await?;
                self.0.insert(common, Handle(handle));
            }
        }
        Ok(())
    }

    /// Maps bytes of a piece.
    fn map(&mut self, at: u64, (common, first_page, bytes): (u64, u64, Range<u64>), access: u32) -> Result<(), Errno> {
        let mapped = with_state(|state| state.memory.segment_of(common));
        let segment = mapped.or(self.0.get(&common).map(|handle| handle.0)).ok_or(Errno::ENOMEM)?;
        let end = at + (bytes.end - bytes.start);
        let area = Area { start: at, end, segment, first_page, protection: access, common, ..Area::default() };
        mapping::map_segment(area)?;
        // The area has it now.
        self.0.remove(&common);
        Ok(())
    }
}

/// Maps runs one after the other: what is filled, or backed by the file, with the access that is
/// wanted, what is new so that it can be filled.
fn lay(
    runs: &[Run],
    (start, offset): (u64, u64),
    (size, file): (u64, Option<&paging::File>),
    (access, is_new): (u32, &dyn Fn(&Run) -> bool),
    parts: &mut Parts,
) -> Result<(), Errno> {
    let first = protection::READ | protection::WRITE;
    for run in runs {
        let Some(piece) = run.piece else {
            let (at, end) = (start + (run.bytes.start - offset), start + (run.bytes.end - offset));
            let covered = round_up(size.saturating_sub(run.bytes.start)).unwrap_or(u64::MAX).min(end - at);
            match file {
                Some(file) => file.map(at, at + covered, access, run.bytes.start)?,
                None => mapping::map_filled(at, at + covered, first)?,
            }
            mapping::map_zeroed(at + covered, end, if file.is_some() { access } else { first })?;
            continue;
        };
        for part in parts_of(run, &piece) {
            parts.map(start + (part.2.start - offset), part, if is_new(run) { first } else { access })?;
        }
    }
    Ok(())
}

/// Fills what is new from the file and gives it its access.
async fn fill(
    id: DescriptionId,
    runs: &[Run],
    (start, offset): (u64, u64),
    (access, is_new): (u32, &dyn Fn(&Run) -> bool),
) -> Result<(), Failure> {
    for Run { bytes, .. } in runs.iter().filter(|run| is_new(run)) {
        let (at, end) = (start + (bytes.start - offset), start + (bytes.end - offset));
        read_raw(id, Target::program(at, end - at)?, bytes.start).await?;
        if access != protection::READ | protection::WRITE {
            mapping::protect(at, end, access)?;
        }
    }
    Ok(())
}

/// Writes to the file where memory differs from it, alone among those who have that memory: another
/// one's bytes, copied before ours were stored, would come to the file after them.
async fn bring(stretch: &Stretch) -> Result<(), Failure> {
    if !compare(stretch, false).await? {
        return Ok(());
    }
    let files = proxy().files_of(stretch.description)?;
    let (from, to) = (stretch.offset, stretch.offset + stretch.bytes);
    let turn = |hold| Lock { kind: LockKind::WriteBack, hold, ..lock_of(&(from..to), Hold::Exclusive, 0) };
    // Without a turn (there are too many locks) it writes all the same: else its bytes are lost for
    // certain.
    let has_turn = files.lock(stretch.description, turn(Some(Hold::Exclusive)), true).await.is_ok();
    let brought = compare(stretch, true).await;
    if has_turn {
        let _ = files.lock(stretch.description, turn(None), false).await;
    }
    brought.map(drop)
}

/// Whether memory differs from the file; `writes` what does. Memory that another thread takes away
/// meanwhile was brought there by that.
async fn compare(stretch: &Stretch, writes: bool) -> Result<bool, Failure> {
    let mut file = vec![0; stretch.bytes.min(PART_BYTES) as usize];
    let (mut done, mut differs) = (0, false);
    while done < stretch.bytes {
        let part = (stretch.bytes - done).min(PART_BYTES);
        let (address, offset) = (stretch.address + done, stretch.offset + done);
        let count = read_raw(stretch.description, Target::Own(&mut file[..part as usize]), offset).await?;
        let mut at = 0;
        loop {
            let found = user::with_bytes(address, count as u64, |memory| next_difference(&file[..count], memory, at));
            let pages = match found {
                Ok(Some(pages)) => pages,
                Ok(None) => break,
                Err(_) => return Ok(differs),
            };
            differs = true;
            if !writes {
                return Ok(true);
            }
            let from = Source::Program(address + pages.start as u64, pages.len() as u64);
            write_raw(stretch.description, from, offset + pages.start as u64).await?;
            at = pages.end;
        }
        if (count as u64) < part {
            // There the file ends.
            break;
        }
        done += part;
    }
    Ok(differs)
}

async fn bring_all(stretches: Vec<Stretch>) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for stretch in &stretches {
        let brought = bring(stretch).await;
        if brought.is_err() {
            log_once(26, "msync: what was stored in a mapping of a file could not be written to it");
            outcome = outcome.and(brought);
        }
    }
    outcome
}

/// Writes to a file, whatever is mapped of it.
pub async fn write_raw(id: DescriptionId, from: Source<'_>, offset: u64) -> Result<(), Failure> {
    let server = server::of_file(id);
    let client = proxy().server(server)?;
    let bulk = super::read_ahead::data_area(&client.bulk());
    let mut done = 0;
    while done < from.len() {
        let part = (from.len() - done).min(bulk.len());
        let _turn = proxy().turn(server).await;
        from.with_part(done, done + part, |bytes| bulk.write(0, bytes))?.map_err(|_| Errno::EIO)?;
        let span = BulkSpan { offset: 0, length: part as u32 };
        match client.write(id, span, Some(offset + done as u64), true).await? {
            0 => return Err(Errno::EIO.into()),
            count => done += (count as usize).min(part),
        }
    }
    Ok(())
}

fn stored_in(range: Range<u64>) -> Vec<Stretch> {
    with_state(|state| state.pieces.at(&state.memory, range, Area::is_writable))
}

fn stored_in_file(inode: u64, bytes: Range<u64>) -> Vec<Stretch> {
    with_state(|state| state.pieces.in_file(&state.memory, inode, bytes, Area::is_writable))
}

/// Brings what was stored in pages to their files (msync), and to the disk if `lasts`.
async fn bring_range(start: u64, bytes: u64, lasts: bool) -> Result<(), Failure> {
    let _turn = proxy().turn(TURN).await;
    let stored = stored_in(pages(start, bytes));
    let mut on_disk: Vec<_> = stored.iter().map(|stretch| stretch.description).collect();
    on_disk.retain(|id| lasts && server::of_file(*id) == server::VOLUME);
    on_disk.dedup();
    bring_all(stored).await?;
    for id in on_disk {
        proxy().files_of(id)?.synchronize(id, false).await?;
    }
    Ok(())
}

/// msync, where something may have been stored.
pub async fn synchronize(start: u64, bytes: u64, flags: u64) -> Outcome {
    const MS_SYNC: u64 = 4;
    bring_range(start, bytes, flags & MS_SYNC != 0).await?;
    mapping::msync(start, bytes, flags)
}

/// Changes pages of memory at once, if nothing that was stored there is to be brought to a file.
pub fn change_unshared(start: u64, bytes: u64, change: impl FnOnce() -> Outcome) -> Option<Outcome> {
    (!lies_in(start, bytes)).then(change)
}

/// Changes pages of memory when what was stored there has been brought to its files. What cannot
/// be written is lost, and was logged.
pub async fn change(start: u64, bytes: u64, change: impl FnOnce() -> Outcome) -> Outcome {
    let _turn = proxy().turn(TURN).await;
    let _ = bring_all(stored_in(pages(start, bytes))).await;
    let outcome = change();
    drop_unused().await;
    outcome
}

/// Takes memory away for another mapping, or nothing; the caller has the turn.
async fn take_away(range: Range<u64>) -> Result<(), Failure> {
    let _ = bring_all(stored_in(range.clone())).await;
    mapping::unmap(range.start, range.end)?;
    drop_unused().await;
    Ok(())
}

/// Gives back the claims of what is mapped no more. Others may map it when this is over.
pub async fn drop_unused() {
    while let Some(piece) = with_state(|state| state.pieces.take_unused(&state.memory)) {
        close_piece(piece).await;
    }
}

/// Brings all to the files: the program is replaced.
pub async fn bring_everything() {
    if let Some(_turn) = turn_if_active().await {
        let _ = bring_all(stored_in(0..u64::MAX)).await;
    }
}

/// Brings all to the files, and gives the claims back before anybody can hear that the process has
/// ended.
pub async fn leave() {
    bring_everything().await;
    while let Some(piece) = with_state(|state| state.pieces.pop()) {
        close_piece(piece).await;
    }
}

/// Gives back the claim, then the memory: who finds the claim can have that.
async fn close_piece(piece: Piece) {
    if let Ok(client) = proxy().server(server::of_file(piece.description)) {
        let _ = client.close(piece.description).await;
    }
    let _ = proxy().process.detach_segment(piece.common);
}

/// Brings to a file what was stored of it, before the process reads so many bytes there. `at` is
/// where, if not at the description's own place.
pub async fn before_read(found: &Description, at: Option<u64>, bytes: u64) -> Result<(), Failure> {
    let _turn = proxy().turn(TURN).await;
    let inode = inode_of(found.id).await?;
    if !with_state(|state| state.pieces.has(inode)) {
        return Ok(());
    }
    let from = match at {
        Some(at) => at,
        None => place_of(found.id).await?,
    };
    bring_all(stored_in_file(inode, from..from.saturating_add(bytes))).await
}

/// A description's own place.
async fn place_of(id: DescriptionId) -> Result<u64, Failure> {
    Ok(proxy().server(server::of_file(id))?.seek(id, 0, Whence::Current).await?)
}

/// Brings to a file all that was stored of it (fsync).
pub async fn bring_file(id: DescriptionId) -> Result<(), Failure> {
    let _turn = proxy().turn(TURN).await;
    let inode = inode_of(id).await?;
    bring_all(stored_in_file(inode, 0..u64::MAX)).await
}

/// A call has written `count` bytes of a file, at `at` or where its description was: they become
/// memory where it is mapped. The caller has the turn.
pub async fn written(found: &Description, at: Option<u64>, count: u64) {
    if follow(found, at, count).await.is_err() {
        log_once(1, "write: a mapping of the file could not follow it");
    }
}

async fn follow(found: &Description, at: Option<u64>, count: u64) -> Result<(), Failure> {
    let inode = inode_of(found.id).await?;
    if !with_state(|state| state.pieces.has(inode)) {
        return Ok(());
    }
    let end = match at {
        Some(at) if found.flags & O_APPEND == 0 => at.saturating_add(count),
        Some(_) => status_of(found.id).await?.size,
        None => place_of(found.id).await?,
    };
    let stretches = in_file(inode, end.saturating_sub(count)..end);
    let mut file = vec![0; count.min(PART_BYTES) as usize];
    for stretch in stretches {
        let mut done = 0;
        while done < stretch.bytes {
            let part = (stretch.bytes - done).min(PART_BYTES);
            let into = Target::Own(&mut file[..part as usize]);
            let got = read_raw(stretch.description, into, stretch.offset + done).await?;
            overwrite(stretch.address + done, &file[..got])?;
            if (got as u64) < part {
                break;
            }
            done += part;
        }
    }
    Ok(())
}

/// A file ends at `size` now: past that, memory of it is zero, as it is in the file if that grows
/// again. The caller has the turn.
pub async fn cut(id: DescriptionId, size: u64) -> Result<(), Failure> {
    const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    let inode = inode_of(id).await?;
    for stretch in in_file(inode, size..u64::MAX) {
        let mut done = 0;
        while done < stretch.bytes {
            let part = (stretch.bytes - done).min(PAGE);
            overwrite(stretch.address + done, &ZEROS[..part as usize])?;
            done += part;
        }
    }
    Ok(())
}

fn in_file(inode: u64, bytes: Range<u64>) -> Vec<Stretch> {
    with_state(|state| state.pieces.in_file(&state.memory, inode, bytes, |_| true))
}

/// Stores bytes within one area, whatever the program may do there.
fn overwrite(at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let Some(area) = with_state(|state| state.memory.find(at).copied()) else { return Ok(()) };
    let open = protection::READ | protection::WRITE;
    let start = at & !(PAGE - 1);
    let end = round_up(at + bytes.len() as u64).ok_or(Errno::EFAULT)?;
    let is_closed = area.protection & open != open;
    if is_closed {
        mapping::protect(start, end, open)?;
    }
    let stored = user::copy_out(at, bytes);
    if is_closed {
        mapping::protect(start, end, area.protection)?;
    }
    stored
}

/// Says once what it means that a file could not be changed, if that is not sealed.
pub async fn tell_refusal(found: &Description, failure: Failure) -> Failure {
    let is_refused = found.is_file() && failure == Failure::Errno(Errno::EPERM);
    if is_refused && unnamed::seals_of(found).await == Ok(0) {
        log_refused(1, "write: those bytes of the file are memory of another program: EPERM");
    }
    failure
}
