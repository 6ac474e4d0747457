//! Extended attributes: files of the volume on a disk have them, all others none.

use alloc::vec::Vec;

use contracts::BulkSpan;
use contracts::descriptions::{AttributeChange, AttributeRequest, Control, ControlReply, DescriptionId, Kind};
use contracts::files::{Elsewhere, VOLUME_DEVICE, open as how};
use personality::Errno;
use personality::descriptors::server;
use personality::flags::*;

use super::errors::{Failure, Outcome};
use super::input_output::{description, opened};
use super::places::at_place;
use super::proxy::proxy;
use super::wait::answer;
use super::{fd, files, read_ahead, user};

/// XATTR_NAME_MAX, XATTR_SIZE_MAX and XATTR_LIST_MAX of Linux.
const NAME_BYTES_MAX: u64 = 255;
const VALUE_BYTES_MAX: u64 = 64 << 10;

/// Of which file a call is.
pub enum Of {
    /// Of what a path leads to; of a link itself unless followed.
    Path { path: u64, follows: bool },
    /// Of what a descriptor names.
    Descriptor(u64),
}

/// A description of the volume's, closed again if it was opened for this call only.
struct Held {
    id: DescriptionId,
    is_own: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_own {
            fd::close_id(server::VOLUME, self.id);
        }
    }
}

/// What a call is about.
struct Found {
    /// If the volume has it.
    held: Option<Held>,
    /// It is a file or a directory.
    is_plain: bool,
}

impl Found {
    /// The file, for an attribute of that name. `EOPNOTSUPP` if it can have none; `refused` for a
    /// name of programs on what is no file or directory, as Linux has it.
    fn expect(self, name: &[u8], refused: Errno) -> Result<Held, Errno> {
        let is_refused = name.starts_with(b"user.") && !self.is_plain;
        self.held.ok_or(if is_refused { refused } else { Errno::EOPNOTSUPP })
    }
}

impl Of {
    async fn find(self) -> Result<Found, Failure> {
        match self {
            Of::Path { path, follows } => {
                let no_follow = if follows { 0 } else { AT_SYMLINK_NOFOLLOW };
                let status = files::status(AT_FDCWD as u64, path, no_follow).await?;
                let is_plain = matches!(status.kind, Kind::File | Kind::Directory);
                let is_there = status.device == VOLUME_DEVICE;
                let held = if is_there { Of::open(path, follows).await? } else { None };
                Ok(Found { held, is_plain })
            }
            Of::Descriptor(descriptor) => {
                let found = opened(descriptor)?;
                let is_plain = [Kind::File, Kind::Directory].map(files::type_bits).contains(&found.kind);
                let held = (found.server == server::VOLUME).then_some(Held { id: found.id, is_own: false });
                Ok(Found { held, is_plain })
            }
        }
    }

    /// Opens a file of the volume, to name it only.
    async fn open(path: u64, follows: bool) -> Result<Option<Held>, Failure> {
        let flags = how::PLACE | if follows { 0 } else { how::NO_FOLLOW };
        let place = files::named(AT_FDCWD as u64, path)?;
        let (keeper, there) = at_place(place, |files, name| files.open(name, flags, 0)).await?;
        match there.elsewhere {
            Some(Elsewhere::Descriptor(number)) => {
                let found = description(number.into())?;
                let is_there = found.server == server::VOLUME;
                Ok(is_there.then_some(Held { id: found.id, is_own: false }))
            }
            Some(_) => Ok(None),
            None if keeper == server::VOLUME => Ok(Some(Held { id: there.id, is_own: true })),
            None => {
                // Another file has its name meanwhile.
                fd::close_id(keeper, there.id);
                Ok(None)
            }
        }
    }
}

/// The name of an attribute. `ERANGE`.
fn name(at: u64) -> Result<Vec<u8>, Errno> {
    let name = user::text_bytes(at, NAME_BYTES_MAX + 1, Errno::ERANGE)?;
    if name.is_empty() { Err(Errno::ERANGE) } else { Ok(name) }
}

/// Asks the volume's server, with `bytes` in the bulk area; `take` has the area when it has
/// answered.
async fn ask(
    held: &Held,
    bytes: &[u8],
    request: AttributeRequest,
    take: impl FnOnce(&channel::Bulk, u64) -> Outcome,
) -> Outcome {
    let client = proxy().server(server::VOLUME)?;
    let bulk = read_ahead::data_area(&client.bulk());
    let _turn = proxy().turn(server::VOLUME).await;
    bulk.write(0, bytes).map_err(|_| Errno::E2BIG)?;
    match answer(client.control(held.id, Control::Attribute(request))).await? {
        ControlReply::Number(count) => take(&bulk, count),
        _ => Ok(0),
    }
}

/// What the bulk area may take of a value or a list.
fn whole() -> BulkSpan {
    BulkSpan { offset: 0, length: VALUE_BYTES_MAX as u32 }
}

/// Gives the program so many bytes of the bulk area, or tells how many there are if it has no room
/// at all. `ERANGE`.
fn give(bulk: &channel::Bulk, count: u64, at: u64, room: u64) -> Outcome {
    if room == 0 {
        return Ok(count);
    }
    if count > room {
        return Err(Errno::ERANGE.into());
    }
    user::with_bytes_mut(at, count, |place| bulk.read(0, place))?.map_err(|_| Errno::EIO)?;
    Ok(count)
}

/// setxattr, lsetxattr, fsetxattr.
pub async fn set(of: Of, [name_at, value_at, bytes, flags]: [u64; 4]) -> Outcome {
    const CREATE: u64 = 1;
    const REPLACE: u64 = 2;
    only(flags, CREATE | REPLACE)?;
    let found = of.find().await?;
    let name = name(name_at)?;
    if bytes > VALUE_BYTES_MAX {
        return Err(Errno::E2BIG.into());
    }
    let value = user::copy_in(value_at, bytes)?;
    let held = found.expect(&name, Errno::EPERM)?;
    let change = match flags & (CREATE | REPLACE) {
        0 => AttributeChange::Any,
        CREATE => AttributeChange::New,
        REPLACE => AttributeChange::Old,
        _ => {
            // What is there is in the way of the one, what is not of the other.
            let request = AttributeRequest::Get { name, span: BulkSpan::default() };
            return ask(&held, &[], request, |_, _| Err(Errno::EEXIST.into())).await;
        }
    };
    let span = BulkSpan { offset: 0, length: bytes as u32 };
    ask(&held, &value, AttributeRequest::Set { name, span, change }, |_, _| Ok(0)).await
}

/// getxattr, lgetxattr, fgetxattr.
pub async fn get(of: Of, name_at: u64, value_at: u64, bytes: u64) -> Outcome {
    let (found, name) = (of.find().await?, name(name_at)?);
    let held = found.expect(&name, Errno::ENODATA)?;
    let request = AttributeRequest::Get { name, span: whole() };
    ask(&held, &[], request, |bulk, count| give(bulk, count, value_at, bytes)).await
}

/// listxattr, llistxattr, flistxattr.
pub async fn list(of: Of, names_at: u64, bytes: u64) -> Outcome {
    let Some(held) = of.find().await?.held else { return Ok(0) };
    let request = AttributeRequest::List { span: whole() };
    ask(&held, &[], request, |bulk, count| give(bulk, count, names_at, bytes)).await
}

/// removexattr, lremovexattr, fremovexattr.
pub async fn remove(of: Of, name_at: u64) -> Outcome {
    let (found, name) = (of.find().await?, name(name_at)?);
    let held = found.expect(&name, Errno::EPERM)?;
    ask(&held, &[], AttributeRequest::Remove { name }, |_, _| Ok(0)).await
}
