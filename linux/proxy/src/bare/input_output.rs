//! Reading, writing, seeking and listing, whichever server holds the description.

use alloc::boxed::Box;
use alloc::vec::Vec;

use contracts::BulkSpan;
use contracts::descriptions::{Control, ControlReply, DescriptionId, Kind, Status, Whence, ready};
use contracts::process::TerminalAccess;
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::layouts::{EntryForm, IoVector, directory_entry};
use personality::limits::{UNLIMITED, resource};
use personality::signals::number::{SIGPIPE, SIGTTIN, SIGXFSZ};
use personality::signals::{Cause, bit, code};

use super::errors::{Failure, Outcome};
use super::poll;
use super::proxy::proxy;
use super::user::{self, Source, Target, with_both, with_signals, with_state};
use super::wait::{answer, answer_of, answer_when_ready, answer_within};
use super::{counters, messages, own_files, read_ahead, shared_files, signals, sockets};

/// Linux's limit for one call.
pub const COUNT_MAX: u64 = 0x7fff_f000;
/// What a message has at most, so that more is no message.
pub const MESSAGE_MAX: u64 = 64 << 10;
/// IOV_MAX.
const VECTORS_MAX: u64 = 1024;
const SEEK_DATA: u64 = 3;
const SEEK_HOLE: u64 = 4;
/// S_IFREG.
pub const REGULAR: u32 = 0o100000;
/// S_IFCHR; the console's other streams are pipes.
const CHARACTER_DEVICE: u32 = 0o020000;

/// What a descriptor names.
pub fn description(descriptor: u64) -> Result<Description, Errno> {
    with_state(|state| state.descriptors.get(descriptor).copied())
}

/// The same where O_PATH will not do: `EBADF`.
pub fn opened(descriptor: u64) -> Result<Description, Errno> {
    description(descriptor).and_then(|found| if found.flags & O_PATH != 0 { Err(Errno::EBADF) } else { Ok(found) })
}

/// What is open for reading. `EBADF`.
pub fn readable(descriptor: u64) -> Result<Description, Errno> {
    opened(descriptor).and_then(|found| if found.flags & O_ACCMODE == O_WRONLY { Err(Errno::EBADF) } else { Ok(found) })
}

/// What is open for writing. `EBADF`, `EINVAL` for what nobody writes to.
pub fn writable(descriptor: u64) -> Result<Description, Errno> {
    let found = description(descriptor)?;
    match found.server {
        _ if found.flags & O_ACCMODE == 0 => Err(Errno::EBADF),
        server::EPOLL | server::SIGNALS => Err(Errno::EINVAL),
        _ => Ok(found),
    }
}

/// A process of the background does not take what is typed for the foreground: its group stops by
/// SIGTTIN and asks again when it is continued. `EIO` where nobody could continue it, or it does
/// not want to hear of it.
async fn may_read_terminal(id: DescriptionId) -> Result<(), Failure> {
    let console = proxy().server(server::CONSOLE)?;
    let asked = answer_of(server::CONSOLE, || console.control(id, Control::GetForeground)).await?;
    let ControlReply::Number(foreground) = asked else { return Ok(()) };
    let hears = with_signals(|signals, thread| !signals.is_ignored(SIGTTIN) && thread.blocked & bit(SIGTTIN) == 0);
    match answer(proxy().process.terminal_access(foreground as u32, hears)).await? {
        TerminalAccess::Foreground => Ok(()),
        TerminalAccess::Background if hears => Err(Failure::Interrupted),
        TerminalAccess::Background | TerminalAccess::Orphaned => Err(Errno::EIO.into()),
    }
}

/// One request: as much as the bulk area carries.
async fn read_once(
    found: &Description,
    mut into: Target<'_>,
    at: Option<u64>,
    wait: bool,
    limit_ns: u64,
) -> Result<usize, Failure> {
    let (server, id) = (found.server, found.id);
    if let Some(read) = read_ahead::read(found, &mut into, at) {
        return read;
    }
    if let Some(count) = read_ahead::read_more(found, &mut into, at).await? {
        return Ok(count);
    }
    let client = proxy().server(server)?;
    let bulk = read_ahead::data_area(&client.bulk());
    let length = into.len().min(bulk.len());
    let span = BulkSpan { offset: 0, length: length as u32 };
    let ask = async |wait, limit_ns| {
        let turn = proxy().turn(server).await;
        let count = if server == server::CONSOLE && at.is_none() {
            let number = proxy().new_request();
            answer_of(server, || client.read_once(id, span, number, wait)).await?
        } else {
            answer_within(server, limit_ns, || client.read(id, span, at, wait)).await?
        };
        Ok((count, turn))
    };
    // The turn lasts until the bytes are taken out.
    let (count, _turn) = answer_when_ready((server, id), ready::READ, wait, limit_ns, ask).await?;
    let count = (count as usize).min(length);
    into.with_first(count, |place| bulk.read(0, place))?.map_err(|_| Errno::EIO)?;
    Ok(count)
}

/// Of a file, by its id.
fn file(id: DescriptionId) -> Description {
    Description { id, server: server::of_file(id), ..Description::default() }
}

/// Reads of a file at an offset until the target is full or the file ends, whatever is mapped of
/// it.
pub async fn read_raw(id: DescriptionId, mut into: Target<'_>, offset: u64) -> Result<usize, Failure> {
    let mut done = 0;
    while done < into.len() {
        match read_once(&file(id), into.rest(done), Some(offset + done as u64), true, 0).await? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// The same, with what was stored in the program's mappings of it.
pub async fn read_at(id: DescriptionId, into: Target<'_>, offset: u64) -> Result<usize, Failure> {
    bring_for_read(&file(id), Some(offset), into.len()).await;
    read_raw(id, into, offset).await
}

/// Before a file is read: what was stored of it in mappings is brought there. Where that fails, it
/// was said, and the file is as it is.
async fn bring_for_read(found: &Description, at: Option<u64>, count: usize) {
    if found.is_file() && shared_files::is_active() {
        let _ = Box::pin(shared_files::before_read(found, at, count as u64)).await;
    }
}

/// Reads as Linux does: files, and devices such as /dev/zero, until the buffer is full, others what
/// there is.
pub async fn read_description(
    found: &Description,
    mut into: Target<'_>,
    mut at: Option<u64>,
    wait: bool,
) -> Result<u64, Failure> {
    if found.server == server::OWN {
        return Err(Errno::EISDIR.into());
    }
    // At the process server an offset would look into a pipe.
    if at.is_some() && matches!(found.server, server::SIGNALS | server::COUNTER | server::PROCESS) {
        return Err(Errno::ESPIPE.into());
    }
    match found.server {
        server::SIGNALS => return signals::read(found, into, wait).await,
        server::COUNTER => return counters::read(found, into, wait).await,
        _ => {}
    }
    if found.server == server::CONSOLE && found.kind == CHARACTER_DEVICE && into.len() > 0 {
        may_read_terminal(found.id).await?;
    }
    bring_for_read(found, at, into.len()).await;
    let mut done = 0;
    while done < into.len() {
        let part = read_once(found, into.rest(done), at, wait, found.receive_limit_ns);
        let count = match part.await {
            Ok(count) => count,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        };
        done += count;
        at = at.map(|at| at + count as u64);
        if count == 0 || !found.is_file() {
            break;
        }
    }
    Ok(done as u64)
}

/// Writes all of it, unless an error, a signal or a full non-blocking description stops it after
/// the first bytes.
pub async fn write_description(
    found: &Description,
    from: Source<'_>,
    mut at: Option<u64>,
    wait: bool,
) -> Result<u64, Failure> {
    if found.server == server::COUNTER {
        return if at.is_some() { Err(Errno::ESPIPE.into()) } else { counters::write(found, from, wait).await };
    }
    let client = proxy().server(found.server)?;
    let bulk = read_ahead::data_area(&client.bulk());
    let whole = within_limit(found, at, from.len()).await?;
    let mut done = 0;
    loop {
        let turn = if found.is_file() { shared_files::turn_if_active().await } else { None };
        let end = whole.min(done + bulk.len());
        let span = BulkSpan { offset: 0, length: (end - done) as u32 };
        let ask = async |wait, limit_ns| {
            let _turn = proxy().turn(found.server).await;
            from.with_part(done, end, |bytes| bulk.write(0, bytes))?.map_err(|_| Errno::EIO)?;
            if found.server == server::CONSOLE && at.is_none() {
                let number = proxy().new_request();
                Ok(answer_of(found.server, || client.write_once(found.id, span, number, wait)).await?)
            } else {
                answer_within(found.server, limit_ns, || client.write(found.id, span, at, wait)).await
            }
        };
        let place = (found.server, found.id);
        match answer_when_ready(place, ready::WRITE, wait, found.send_limit_ns, ask).await {
            Ok(count) => {
                let count = (count as usize).min(end - done);
                if turn.is_some() {
                    Box::pin(shared_files::written(found, at, count as u64)).await;
                }
                done += count;
                at = at.map(|at| at + count as u64);
                if done == whole || count == 0 {
                    break;
                }
            }
            Err(failure) if done == 0 => {
                poll::again(found);
                return Err(Box::pin(shared_files::tell_refusal(found, failure)).await);
            }
            Err(_) => break,
        }
    }
    if done < whole {
        // Full: what comes next is room.
        poll::again(found);
    }
    if done > 0 && found.flags & O_DSYNC != 0 {
        keep(found, found.flags & O_SYNC_WHOLE != 0).await?;
    }
    Ok(done as u64)
}

/// Has what was written to a file so far last, if it lies on a disk.
async fn keep(found: &Description, whole: bool) -> Result<(), Failure> {
    if found.server == server::VOLUME {
        proxy().files_at(found.server)?.synchronize(found.id, whole).await?;
    }
    Ok(())
}

/// Sends the thread a signal of its own doing.
fn post(signal: u8) {
    with_both(|state, thread| {
        let cause = Cause::of_process(code::SI_USER, state.process);
        state.signals.post_to(&mut thread.signals, signal, cause);
    });
}

/// A broken pipe also is a signal.
pub fn with_sigpipe(outcome: Outcome) -> Outcome {
    if outcome == Err(Failure::Errno(Errno::EPIPE)) {
        post(SIGPIPE);
    }
    outcome
}

/// Past RLIMIT_FSIZE: a signal too.
fn too_large() -> Errno {
    post(SIGXFSZ);
    Errno::EFBIG
}

fn file_limit() -> u64 {
    with_state(|state| state.limits.soft(resource::FILE_BYTES))
}

/// How many of so many bytes may be written to a file (RLIMIT_FSIZE). `EFBIG` if none.
async fn within_limit(found: &Description, at: Option<u64>, count: usize) -> Result<usize, Failure> {
    let limit = file_limit();
    if limit == UNLIMITED || !found.is_file() || found.kind != REGULAR || count == 0 {
        return Ok(count);
    }
    let place = match at {
        _ if found.flags & O_APPEND != 0 => status_of(found.id).await?.size,
        Some(at) => at,
        None => answer(proxy().server(found.server)?.seek(found.id, 0, Whence::Current)).await?,
    };
    let room = limit.saturating_sub(place);
    if room == 0 { Err(too_large().into()) } else { Ok(count.min(usize::try_from(room).unwrap_or(usize::MAX))) }
}

/// May a file of that size have another one? `EFBIG` beyond RLIMIT_FSIZE.
pub fn may_resize(old: u64, new: u64) -> Result<(), Errno> {
    if new > old && new > file_limit() { Err(too_large()) } else { Ok(()) }
}

fn offset(at: Option<u64>) -> Result<Option<u64>, Errno> {
    if at.is_some_and(|at| at > i64::MAX as u64) { Err(Errno::EINVAL) } else { Ok(at) }
}

/// read, pread64 and, with `wait` overridden, recv.
pub async fn read(descriptor: u64, buffer: u64, count: u64, at: Option<u64>, wait: Option<bool>) -> Outcome {
    let found = readable(descriptor)?;
    let into = Target::program(buffer, count.min(COUNT_MAX))?;
    read_description(&found, into, offset(at)?, wait.unwrap_or(found.flags & O_NONBLOCK == 0)).await
}

/// write, pwrite64, send.
pub async fn write(descriptor: u64, buffer: u64, count: u64, at: Option<u64>, wait: Option<bool>) -> Outcome {
    let found = writable(descriptor)?;
    if at.is_none() && sockets::is_local(&found) && count > MESSAGE_MAX {
        let flags = if wait == Some(false) { MSG_DONTWAIT } else { 0 };
        let from = [IoVector { base: buffer, bytes: count.min(COUNT_MAX) }];
        return messages::send(&found, &from, flags, (0, 0), &[]).await;
    }
    let from = Source::program(buffer, count.min(COUNT_MAX))?;
    write_description(&found, from, offset(at)?, wait.unwrap_or(found.flags & O_NONBLOCK == 0)).await
}

/// The vectors that a call names.
pub fn vectors(at: u64, count: u64) -> Result<Vec<IoVector>, Errno> {
    if count > VECTORS_MAX {
        return Err(Errno::EINVAL);
    }
    let all: Vec<IoVector> =
        (0..count).map(|index| user::read(at.wrapping_add(index * 16))).collect::<Result<_, _>>()?;
    let total = all.iter().try_fold(0u64, |total, vector| total.checked_add(vector.bytes)).ok_or(Errno::EINVAL)?;
    if total > COUNT_MAX { Err(Errno::EINVAL) } else { Ok(all) }
}

/// readv, preadv, recvmsg.
pub async fn read_vectors(
    descriptor: u64,
    at: u64,
    count: u64,
    mut position: Option<u64>,
    wait: Option<bool>,
) -> Outcome {
    let found = readable(descriptor)?;
    if position.is_none() && sockets::is_local(&found) {
        // A message belongs to all of them.
        let flags = if wait == Some(false) { MSG_DONTWAIT } else { 0 };
        return messages::receive(&found, &vectors(at, count)?, flags, 0).await.map(|(length, _)| length);
    }
    let mut done = 0;
    for vector in vectors(at, count)?.into_iter().filter(|vector| vector.bytes > 0) {
        // Only the first may wait: what is there is given.
        let wait = if done > 0 { Some(false) } else { wait };
        match read(descriptor, vector.base, vector.bytes, position, wait).await {
            Ok(count) => {
                done += count;
                position = position.map(|position| position + count);
                if count < vector.bytes {
                    break;
                }
            }
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        }
    }
    if done == 0 {
        readable(descriptor)?;
    }
    Ok(done)
}

/// writev, pwritev, sendmsg. Small pieces are joined, so that a line stays one message.
pub async fn write_vectors(descriptor: u64, at: u64, count: u64, position: Option<u64>, wait: Option<bool>) -> Outcome {
    const JOINED_MAX: u64 = 64 << 10;
    let found = writable(descriptor)?;
    let vectors = vectors(at, count)?;
    let total: u64 = vectors.iter().map(|vector| vector.bytes).sum();
    if total > JOINED_MAX && sockets::is_local(&found) {
        let flags = if wait == Some(false) { MSG_DONTWAIT } else { 0 };
        return messages::send(&found, &vectors, flags, (0, 0), &[]).await;
    }
    let wait = wait.unwrap_or(found.flags & O_NONBLOCK == 0);
    if total <= JOINED_MAX {
        let mut joined = Vec::with_capacity(total as usize);
        for vector in &vectors {
            user::with_bytes(vector.base, vector.bytes, |bytes| joined.extend_from_slice(bytes))?;
        }
        return write_description(&found, Source::Own(&joined), offset(position)?, wait).await;
    }
    let mut done = 0;
    for vector in vectors {
        match write_description(
            &found,
            Source::program(vector.base, vector.bytes)?,
            offset(position.map(|position| position + done))?,
            wait,
        )
        .await
        {
            Ok(count) => {
                done += count;
                if count < vector.bytes {
                    break;
                }
            }
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Where preadv2 and pwritev2 read and write, and whether they may wait. -1 is the description's
/// own place. `EOPNOTSUPP` for flags that would change more (RWF_APPEND).
fn by_flags(offset: u64, flags: u64) -> Result<(Option<u64>, Option<bool>), Errno> {
    if flags & !(RWF_OF_STORAGE | RWF_NOWAIT) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let position = (offset as i64 != -1).then_some(offset);
    if position.is_some_and(|at| at > i64::MAX as u64) {
        return Err(Errno::EINVAL);
    }
    Ok((position, (flags & RWF_NOWAIT != 0).then_some(false)))
}

/// preadv2.
pub async fn read_by_flags([descriptor, at, count, offset, _, flags]: [u64; 6]) -> Outcome {
    // RWF_APPEND is of writing.
    let (position, wait) = by_flags(offset, flags & !RWF_APPEND)?;
    read_vectors(descriptor, at, count, position, wait).await
}

/// pwritev2.
pub async fn write_by_flags([descriptor, at, count, offset, _, flags]: [u64; 6]) -> Outcome {
    let (position, wait) = by_flags(offset, flags)?;
    let written = with_sigpipe(write_vectors(descriptor, at, count, position, wait).await)?;
    if written > 0 && flags & (RWF_DSYNC | RWF_SYNC) != 0 {
        keep(&description(descriptor)?, flags & RWF_SYNC != 0).await?;
    }
    Ok(written)
}

/// lseek for SEEK_DATA and SEEK_HOLE.
async fn seek_data(found: &Description, offset: u64, to_hole: bool) -> Outcome {
    if found.kind != REGULAR {
        let has_place = found.is_file() || found.kind == 0;
        return Err(if has_place { Errno::EINVAL } else { Errno::ESPIPE }.into());
    }
    let rest = (i64::MAX as u64).checked_sub(offset).ok_or(Errno::ENXIO)?;
    // What was stored in mappings is data.
    bring_for_read(found, Some(offset), rest as usize).await;
    let whence = if to_hole { Whence::Hole } else { Whence::Data };
    Ok(answer(proxy().server(found.server)?.seek(found.id, offset as i64, whence)).await?)
}

/// lseek. A directory's place is kept here, because getdents64 asks by cookie.
pub async fn seek(descriptor: u64, offset: u64, whence: u64) -> Outcome {
    let found = opened(descriptor)?;
    let whence = match whence {
        0 => Whence::Start,
        1 => Whence::Current,
        2 => Whence::End,
        SEEK_DATA | SEEK_HOLE => return seek_data(&found, offset, whence == SEEK_HOLE).await,
        _ => return Err(Errno::EINVAL.into()),
    };
    if found.server == server::COUNTER {
        return Ok(0);
    }
    if found.kind == 0o040000 {
        let place = if whence == Whence::Current { found.cookie.wrapping_add(offset) } else { offset };
        with_state(|state| state.descriptors.get_mut(descriptor).map(|found| found.cookie = place))?;
        return Ok(place);
    }
    read_ahead::seeks(&found);
    Ok(answer(proxy().server(found.server).map_err(|_| Errno::ESPIPE)?.seek(found.id, offset as i64, whence)).await?)
}

/// What the server knows of a descriptor.
pub async fn status(descriptor: u64) -> Result<Status, Failure> {
    let found = description(descriptor)?;
    if found.server == server::OWN {
        return Ok(own_files::status_of(found.id));
    }
    if matches!(found.server, server::EPOLL | server::SIGNALS | server::COUNTER) {
        return Ok(Status::of_no_file(Kind::Anonymous, 0o600, found.id, 4));
    }
    Ok(answer(proxy().server(found.server)?.status(found.id)).await?)
}

/// What is known of a file, whether or not a signal waits.
pub async fn status_of(id: DescriptionId) -> Result<Status, Failure> {
    Ok(proxy().server(server::of_file(id))?.status(id).await?)
}

/// fsync and, of less than the whole, fdatasync: what is mapped is brought to the file, and the
/// file to the disk, if it lies on one.
pub async fn synchronize(descriptor: u64, whole: bool) -> Outcome {
    let found = opened(descriptor)?;
    status(descriptor).await?;
    if found.is_file() && shared_files::is_active() {
        Box::pin(shared_files::bring_file(found.id)).await?;
    }
    keep(&found, whole).await?;
    Ok(0)
}

/// sync: what it could not keep it tells nobody.
pub async fn synchronize_all() -> Outcome {
    shared_files::bring_everything().await;
    if let Ok(volume) = proxy().files_at(server::VOLUME) {
        let _ = volume.synchronize_all(None).await;
    }
    Ok(0)
}

/// syncfs.
pub async fn synchronize_tree(descriptor: u64) -> Outcome {
    let found = opened(descriptor)?;
    if found.server == server::VOLUME {
        shared_files::bring_everything().await;
        proxy().files_at(server::VOLUME)?.synchronize_all(Some(found.id)).await?;
    }
    Ok(0)
}

/// fallocate: of mode 0.
pub async fn allocate(descriptor: u64, mode: u64, offset: u64, bytes: u64) -> Outcome {
    opened(descriptor)?;
    let (offset, bytes) = (offset as i64, bytes as i64);
    if offset < 0 || bytes <= 0 {
        return Err(Errno::EINVAL.into());
    }
    if mode != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let end = offset.checked_add(bytes).ok_or(Errno::EFBIG)?;
    resize(descriptor, end as u64, true).await
}

/// ftruncate, and fallocate of mode 0 (`grow_only`).
pub async fn resize(descriptor: u64, size: u64, grow_only: bool) -> Outcome {
    opened(descriptor)?;
    // Only ftruncate says it so of what is not open for writing.
    let found = writable(descriptor).map_err(|errno| if grow_only { errno } else { Errno::EINVAL })?;
    if size > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    let is_limited = file_limit() != UNLIMITED && found.is_file();
    if grow_only || is_limited {
        let old = status(descriptor).await?.size;
        if grow_only && old >= size {
            return Ok(0);
        }
        may_resize(old, size)?;
    }
    let turn = if found.is_file() { shared_files::turn_if_active().await } else { None };
    let done = answer(proxy().server(found.server)?.resize(found.id, size)).await;
    if let Err(error) = done {
        return Err(Box::pin(shared_files::tell_refusal(&found, error.into())).await);
    }
    if turn.is_some() {
        Box::pin(shared_files::cut(found.id, size)).await?;
    }
    Ok(0)
}

/// getdents64 and getdents.
pub async fn entries(descriptor: u64, buffer: u64, bytes: u64, form: EntryForm) -> Outcome {
    let found = opened(descriptor)?;
    let limit = bytes.min(64 << 10) as usize;
    user::check_writable(buffer, limit as u64)?;
    if found.server == server::OWN {
        return own_files::entries(descriptor, &found, (buffer, limit), form);
    }
    let client = proxy().server(found.server)?;
    let mut packed = Vec::new();
    let mut cookie = found.cookie;
    'answers: loop {
        let (entries, next) = answer(client.entries(found.id, cookie)).await?;
        if entries.is_empty() {
            break;
        }
        let first_of_answer = packed.len();
        for entry in &entries {
            if !directory_entry(
                &mut packed,
                limit,
                (entry.inode, next, (super::files::type_bits(entry.kind) >> 12) as u8),
                &entry.name,
                form,
            ) {
                // Cookies are per answer: an answer that does not fit whole is asked for again.
                packed.truncate(first_of_answer);
                break 'answers;
            }
        }
        cookie = next;
    }
    if packed.is_empty() && cookie == found.cookie {
        let any = !answer(client.entries(found.id, cookie)).await?.0.is_empty();
        return if any { Err(Errno::EINVAL.into()) } else { Ok(0) };
    }
    user::copy_out(buffer, &packed)?;
    with_state(|state| state.descriptors.get_mut(descriptor).map(|found| found.cookie = cookie))?;
    Ok(packed.len() as u64)
}
