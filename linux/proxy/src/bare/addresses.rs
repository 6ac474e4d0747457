//! Socket addresses in the program's memory, and the files that stand for those within the machine.

use contracts::descriptions::Kind;
use contracts::sockets::{Address, LOCAL_NAME_MAX, LocalAddress, SocketAddress, SocketAddress6};
use personality::Errno;
use personality::descriptors::server;
use personality::flags::*;
use personality::layouts::{InternetAddress, InternetAddress6};
use system::file_name;
use zerocopy::IntoBytes;

use super::errors::Failure;
use super::files::resolved;
use super::places::{Place, at_place, number_of};
use super::user::{self, with_state};

/// Bytes of the family, with which every address begins.
const FAMILY_BYTES: u64 = 2;

/// What a program named.
enum Given {
    /// As it stands.
    Address(Address),
    /// A path, which a file has to stand for.
    Path(LocalAddress),
}

/// The address at `at`, for a socket of that server. `EINVAL` for one that is too short or too
/// long, `EAFNOSUPPORT`.
fn given(server: u32, at: u64, bytes: u64) -> Result<Given, Errno> {
    if bytes < FAMILY_BYTES {
        return Err(Errno::EINVAL);
    }
    match user::read::<u16>(at)? {
        // This disconnects a socket of messages.
        AF_UNSPEC => Ok(Given::Address(Address::Local(LocalAddress::default()))),
        AF_INET if server != server::TCP || bytes < size_of::<InternetAddress>() as u64 => Err(Errno::EINVAL),
        AF_INET => {
            let InternetAddress { address, port, .. } = user::read(at)?;
            Ok(Given::Address(Address::Internet(SocketAddress { address, port: u16::from_be_bytes(port) })))
        }
        AF_INET6 if server != server::TCP || bytes < size_of::<InternetAddress6>() as u64 => Err(Errno::EINVAL),
        AF_INET6 => {
            let InternetAddress6 { address, port, .. } = user::read(at)?;
            Ok(Given::Address(Address::Internet6(SocketAddress6 { address, port: u16::from_be_bytes(port) })))
        }
        AF_UNIX if server != server::PROCESS => Err(Errno::EAFNOSUPPORT),
        AF_UNIX if bytes > FAMILY_BYTES + LOCAL_NAME_MAX as u64 => Err(Errno::EINVAL),
        AF_UNIX => {
            let name = user::copy_in(at + FAMILY_BYTES, bytes - FAMILY_BYTES)?;
            if name.first().is_none_or(|first| *first == 0) {
                return Ok(Given::Address(Address::Local(LocalAddress { file: None, name })));
            }
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            Ok(Given::Path(LocalAddress { file: None, name: name[..end].into() }))
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

fn path_of(address: &LocalAddress) -> Result<Place, Errno> {
    resolved(AT_FDCWD as u64, &file_name::to_text(&address.name))
}

/// Where to connect or send to: a path's file tells. `ENOENT`, `ECONNREFUSED` if it is no socket's.
pub async fn found(server: u32, at: u64, bytes: u64) -> Result<Address, Failure> {
    let address = match given(server, at, bytes)? {
        Given::Address(address) => return Ok(address),
        Given::Path(address) => address,
    };
    let (server, status) = at_place(path_of(&address)?, |files, name| files.status(name, true)).await?;
    if status.kind != Kind::Socket {
        return Err(Errno::ECONNREFUSED.into());
    }
    Ok(Address::Local(LocalAddress { file: Some(number_of(server, status.inode)), ..address }))
}

/// What to bind to: a path's file is made. `EADDRINUSE`.
pub async fn made(server: u32, at: u64, bytes: u64) -> Result<Address, Failure> {
    let address = match given(server, at, bytes)? {
        Given::Address(address) => return Ok(address),
        Given::Path(address) => address,
    };
    let permissions = 0o777 & !with_state(|state| state.umask as u32);
    match at_place(path_of(&address)?, |files, name| files.make_socket(name, permissions)).await {
        Ok((_, file)) => Ok(Address::Local(LocalAddress { file: Some(file), ..address })),
        Err(Failure::Errno(Errno::EEXIST)) => Err(Errno::EADDRINUSE.into()),
        Err(failure) => Err(failure),
    }
}

/// The file that was made goes: nothing was bound to it.
pub async fn unmade(address: Address) {
    if let Address::Local(address @ LocalAddress { file: Some(_), .. }) = address
        && let Ok(path) = path_of(&address)
    {
        // Somebody else may have removed it meanwhile.
        let _ = at_place(path, |files, name| files.remove(name, false)).await;
    }
}

/// Writes an address, cut to the room the program gave, and its full length.
pub fn tell(address: &Address, at: u64, length_at: u64) -> Result<(), Errno> {
    if at == 0 || length_at == 0 {
        return Ok(());
    }
    let room = user::read::<u32>(length_at)?;
    let length = put(address, at, room)?;
    user::write(length_at, &length)
}

/// Writes as much of an address as there is room, and gives its full length.
pub fn put(address: &Address, at: u64, room: u32) -> Result<u32, Errno> {
    let mut bytes = [0; FAMILY_BYTES as usize + LOCAL_NAME_MAX + 1];
    let length = match address {
        Address::Internet(SocketAddress { address, port }) => {
            let full = InternetAddress { family: AF_INET, port: port.to_be_bytes(), address: *address, zero: [0; 8] };
            bytes[..size_of::<InternetAddress>()].copy_from_slice(full.as_bytes());
            size_of::<InternetAddress>()
        }
        Address::Internet6(SocketAddress6 { address, port }) => {
            let port = port.to_be_bytes();
            let full = InternetAddress6 { family: AF_INET6, port, flow: 0, address: *address, scope: 0 };
            bytes[..size_of::<InternetAddress6>()].copy_from_slice(full.as_bytes());
            size_of::<InternetAddress6>()
        }
        Address::Local(LocalAddress { name, .. }) => {
            bytes[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
            let end = 2 + name.len().min(LOCAL_NAME_MAX);
            bytes[2..end].copy_from_slice(&name[..end - 2]);
            // A path is told with its zero.
            end + usize::from(name.first().is_some_and(|first| *first != 0))
        }
    };
    user::write(at, &bytes[..length.min(room as usize)])?;
    Ok(length as u32)
}
