//! Reads of files from what the proxy keeps of them (`personality::read_ahead`,
//! `personality::block_cache`): the server's word beside it says whether the file is still so, and
//! who reads at a description's own offset says by another how far it came
//! (`contracts::descriptions::copy_words`).
//!
//! The words lie behind the data of a server's bulk area, one pair for each place. A process of
//! several threads reads so at places only: two of them may move an offset at once.

use channel::Bulk;
use contracts::BulkSpan;
use contracts::descriptions::{Copied, DescriptionError, copy_words};
use personality::Errno;
use personality::block_cache::FILES;
use personality::descriptors::Description;
use personality::read_ahead::{Name, PLACES, Stretch};

use super::errors::Failure;
use super::input_output::{REGULAR, readable};
use super::proxy::proxy;
use super::user::Target;
use super::wait::answer_of;
use super::{shared_files, threads};

const _: () = assert!((PLACES + FILES) * copy_words::BYTES <= copy_words::AREA_BYTES as usize);

/// The part of a bulk area that is for data.
pub fn data_area(bulk: &Bulk) -> Bulk {
    bulk.part(0, words(bulk, 0)).unwrap_or_else(|_| bulk.clone())
}

fn words(bulk: &Bulk, place: usize) -> usize {
    bulk.len().saturating_sub(copy_words::AREA_BYTES as usize) + place * copy_words::BYTES
}

fn name(found: &Description) -> Name {
    (found.server, found.id)
}

/// Whether reads of it may be answered from what is kept.
fn may_keep(found: &Description, at: Option<u64>) -> bool {
    found.is_file() && found.kind == REGULAR && (at.is_some() || threads::is_alone()) && !shared_files::is_active()
}

/// Reads what is kept, if that is all that is wanted and as the file is.
pub fn read(found: &Description, into: &mut Target<'_>, at: Option<u64>) -> Option<Result<usize, Failure>> {
    if !may_keep(found, at) {
        return None;
    }
    let client = proxy().server(found.server).ok()?;
    if client.channel().is_overtaken() {
        return None;
    }
    let bulk = client.bulk();
    read_stretch(found, into, at, &bulk).or_else(|| read_blocks(found, into, at?, &bulk))
}

fn read_stretch(
    found: &Description,
    into: &mut Target<'_>,
    at: Option<u64>,
    bulk: &Bulk,
) -> Option<Result<usize, Failure>> {
    let mut all = proxy().read_ahead.borrow_mut();
    let (place, range) = all.find(name(found), at, into.len())?;
    let words = words(bulk, place);
    if bulk.load_u32(words + copy_words::OVER) != Ok(0) {
        all.discard(place);
        return None;
    }
    let (count, end) = (range.len(), range.end);
    if let Err(errno) = into.with_first(count, |bytes| bytes.copy_from_slice(all.bytes(place, range))) {
        return Some(Err(errno.into()));
    }
    if let Some(read) = all.moved(place, at, end) {
        // They lie in the area.
        let _ = bulk.store_u32(words + copy_words::READ, read);
    }
    Some(Ok(count))
}

fn read_blocks(found: &Description, into: &mut Target<'_>, at: u64, bulk: &Bulk) -> Option<Result<usize, Failure>> {
    let mut cache = proxy().block_cache.borrow_mut();
    let file = cache.file(name(found))?;
    let count = cache.find(file, at, into.len())?;
    if bulk.load_u32(words(bulk, PLACES + file) + copy_words::OVER) != Ok(0) {
        cache.discard(file);
        return None;
    }
    Some(into.with_first(count, |bytes| cache.copy(file, at, bytes)).map(|()| count).map_err(Failure::from))
}

/// read, where a descriptor names a file of which enough is kept.
pub fn try_read(descriptor: u64, buffer: u64, count: u64) -> Option<Result<u64, Failure>> {
    let found = readable(descriptor).ok().filter(|_| count > 0)?;
    let mut into = Target::program(buffer, count).ok()?;
    read(&found, &mut into, None).map(|read| read.map(|count| count as u64))
}

/// Reads more than is wanted, of which the rest is kept; `None`: it is to be read otherwise.
pub async fn read_more(found: &Description, into: &mut Target<'_>, at: Option<u64>) -> Result<Option<usize>, Failure> {
    let count = into.len();
    if !may_keep(found, at) {
        return Ok(None);
    }
    if !proxy().read_ahead.borrow_mut().goes_on(name(found), at, count) {
        let Some(at) = at else { return Ok(None) };
        let is_again = proxy().block_cache.borrow_mut().reads_again(name(found), at, count);
        return if is_again { keep_blocks(found, into, at).await } else { Ok(None) };
    }
    let client = proxy().server(found.server)?;
    // Places are given by who has the bulk area, whose words they have.
    let _turn = proxy().turn(found.server).await;
    let bulk = client.bulk();
    let most = data_area(&bulk).len();
    let Some((place, length)) = proxy().read_ahead.borrow_mut().plan(name(found), at, count, most) else {
        return Ok(None);
    };
    let (span, words) = (BulkSpan { offset: 0, length: length as u32 }, words(&bulk, place));
    let asked = answer_of(found.server, || client.read_and_keep(found.id, span, at, words as u32)).await;
    let Copied { from, count: got } = match asked {
        Ok(answer) => answer,
        Err(channel::CallError::Server(
            DescriptionError::Busy | DescriptionError::NotSupported | DescriptionError::TooMany,
        )) => {
            proxy().read_ahead.borrow_mut().refused(name(found));
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let got = (got as usize).min(length);
    let own = got.min(count);
    let mut bytes = proxy().read_ahead.borrow_mut().room();
    bytes.truncate(got);
    if bytes.try_reserve_exact(got - bytes.len()).is_err() {
        // It is read again, where the offset is.
        return Ok(None);
    }
    bytes.resize(got, 0);
    bulk.read(0, &mut bytes).map_err(|_| Errno::EIO)?;
    into.with_first(own, |place| place.copy_from_slice(&bytes[..own]))?;
    if at.is_none() {
        let _ = bulk.store_u32(words + copy_words::READ, own as u32);
    }
    if bulk.load_u32(words + copy_words::OVER) == Ok(0) {
        let read = at.is_none().then_some(own);
        let stretch = Stretch { name: name(found), from, bytes, ends_file: got < length, read };
        proxy().read_ahead.borrow_mut().keep(place, stretch);
    }
    Ok(Some(own))
}

/// Reads the whole blocks that a piece is of, and keeps them; `None`: it is to be read otherwise.
async fn keep_blocks(found: &Description, into: &mut Target<'_>, at: u64) -> Result<Option<usize>, Failure> {
    let (client, cache) = (proxy().server(found.server)?, &proxy().block_cache);
    // The words are theirs who have the bulk area. Who has that of the other server may give the
    // file's place to one there.
    let _turn = proxy().turn(found.server).await;
    let bulk = client.bulk();
    let planned = cache.borrow_mut().plan(name(found), at, into.len(), data_area(&bulk).len());
    let Some(plan) = planned else { return Ok(None) };
    let words = words(&bulk, PLACES + plan.file);
    // It stays there if the blocks that are kept are as the file is.
    let are_kept = u32::from(cache.borrow().has_blocks(plan.file));
    let _ = bulk.store_u32(words + copy_words::READ, are_kept);
    let span = BulkSpan { offset: 0, length: plan.length as u32 };
    let asked = answer_of(found.server, || client.read_and_keep(found.id, span, Some(plan.from), words as u32)).await;
    let got = match asked {
        Ok(answer) => (answer.count as usize).min(plan.length),
        Err(channel::CallError::Server(
            DescriptionError::Busy | DescriptionError::NotSupported | DescriptionError::TooMany,
        )) => {
            cache.borrow_mut().refused(plan);
            return Ok(None);
        }
        // The next plan discards what is kept.
        Err(error) => return Err(error.into()),
    };
    let skipped = (at - plan.from) as usize;
    let own = got.saturating_sub(skipped).min(into.len());
    into.with_first(own, |place| bulk.read(skipped, place))?.map_err(|_| Errno::EIO)?;
    let mut cache = cache.borrow_mut();
    cache.answered(plan, bulk.load_u32(words + copy_words::READ) == Ok(are_kept));
    if bulk.load_u32(words + copy_words::OVER) == Ok(0) {
        cache.keep(plan, got, |from, bytes| bulk.read(from, bytes).is_ok());
    }
    Ok(Some(own))
}

/// A description's own offset is moved.
pub fn seeks(found: &Description) {
    proxy().read_ahead.borrow_mut().seeks(name(found));
}
