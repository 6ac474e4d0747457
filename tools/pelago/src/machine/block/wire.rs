//! The NBD protocol, as far as the emulator's client speaks it: the fixed newstyle handshake with
//! one export of any name, and simple replies (doc/proto.md of NetworkBlockDevice/nbd). Numbers are
//! big-endian.
//!
//! What a client sends is checked here: what comes out is of the protocol, if not of the disk.

use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Read, Write};

const SERVER_MAGIC: &[u8; 8] = b"NBDMAGIC";
const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Handshake flags, of server and of client: fixed newstyle, and no zeros behind an export's size.
const FIXED_NEWSTYLE: u32 = 1;
const NO_ZEROES: u32 = 2;
/// What is left out with [`NO_ZEROES`].
const ZEROES_BYTES: usize = 124;
/// There are flags; flush, write through, trim, write zeros.
const TRANSMISSION_FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6;
/// Of a request: write through.
const REQUEST_FLAG_FUA: u16 = 1;
/// The client of a block size that it was not told may be refused; what is told: smallest, best.
const BLOCK_SIZES: [u32; 2] = [super::SECTOR_BYTES as u32, 4096];
/// The longest request, as the protocol recommends.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The longest option: a name has 4,096 bytes at most, and a request for information is longer.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// More options than any client has.
const OPTIONS_MAX: usize = 64;

mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
}

mod option_reply {
    pub const ACK: u32 = 1;
    pub const INFO: u32 = 3;
    pub const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub const INVALID: u32 = 1 << 31 | 3;
}

/// Kinds of information about an export.
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// Errors of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    /// None that was offered.
    Other,
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub command: Command,
    pub is_through: bool,
    /// The client's number for it.
    pub cookie: u64,
    pub offset: u64,
    pub bytes: u32,
    /// Of a write.
    pub data: Vec<u8>,
}

/// Does the handshake for a disk of so many bytes. False: the client left before it was done.
pub fn greet(stream: &mut (impl Read + Write), disk_bytes: u64) -> Result<bool> {
    let flags = (FIXED_NEWSTYLE | NO_ZEROES) as u16;
    stream.write_all(&[&SERVER_MAGIC[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat())?;
    let client = u32::from_be_bytes(take(stream)?);
    ensure!(client & FIXED_NEWSTYLE != 0, "the NBD client does not know the fixed newstyle handshake");
    for _ in 0..OPTIONS_MAX {
        let (option, data) = read_option(stream)?;
        match option {
            option::EXPORT_NAME => {
                let mut about = [&disk_bytes.to_be_bytes()[..], &TRANSMISSION_FLAGS.to_be_bytes()].concat();
                if client & NO_ZEROES == 0 {
                    about.extend([0; ZEROES_BYTES]);
                }
                stream.write_all(&about)?;
                return Ok(true);
            }
            option::ABORT => {
                // It need not wait for the answer.
                let _ = answer(stream, option, option_reply::ACK, &[]);
                return Ok(false);
            }
            option::INFO | option::GO if !is_info_request(&data) => {
                answer(stream, option, option_reply::INVALID, b"no request for information")?;
            }
            option::INFO | option::GO => {
                inform(stream, option, disk_bytes)?;
                if option == option::GO {
                    return Ok(true);
                }
            }
            _ => answer(stream, option, option_reply::UNSUPPORTED, &[])?,
        }
    }
    bail!("the NBD client has more than {OPTIONS_MAX} options");
}

fn read_option(stream: &mut impl Read) -> Result<(u32, Vec<u8>)> {
    ensure!(u64::from_be_bytes(take(stream)?) == OPTION_MAGIC, "the NBD client sends no option");
    let (option, bytes) = (u32::from_be_bytes(take(stream)?), u32::from_be_bytes(take(stream)?));
    ensure!(bytes <= OPTION_BYTES_MAX, "an option of the NBD client has {bytes} bytes");
    let mut data = vec![0; bytes as usize];
    stream.read_exact(&mut data)?;
    Ok((option, data))
}

/// Length and bytes of a name, then how many kinds of information are asked for, and which.
fn is_info_request(data: &[u8]) -> bool {
    let kinds = || {
        let (length, rest) = data.split_first_chunk()?;
        let rest = rest.get(u32::from_be_bytes(*length) as usize..)?;
        let (count, kinds) = rest.split_first_chunk()?;
        Some(kinds.len() == 2 * usize::from(u16::from_be_bytes(*count)))
    };
    kinds().unwrap_or(false)
}

/// All that is known of the export, asked for or not.
fn inform(stream: &mut impl Write, option: u32, disk_bytes: u64) -> Result<()> {
    let export = [&INFO_EXPORT.to_be_bytes()[..], &disk_bytes.to_be_bytes(), &TRANSMISSION_FLAGS.to_be_bytes()];
    answer(stream, option, option_reply::INFO, &export.concat())?;
    let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    BLOCK_SIZES.iter().chain(&[REQUEST_BYTES_MAX]).for_each(|size| sizes.extend(size.to_be_bytes()));
    answer(stream, option, option_reply::INFO, &sizes)?;
    answer(stream, option, option_reply::ACK, &[])
}

fn answer(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> Result<()> {
    let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    [option, kind, data.len() as u32].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes.extend(data);
    Ok(stream.write_all(&bytes)?)
}

/// The next request; none when the client has closed the connection.
pub fn read_request(stream: &mut impl Read) -> Result<Option<Request>> {
    let mut magic = [0; 4];
    match stream.read_exact(&mut magic) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    ensure!(u32::from_be_bytes(magic) == REQUEST_MAGIC, "the NBD client sends no request");
    let (flags, command) = (u16::from_be_bytes(take(stream)?), u16::from_be_bytes(take(stream)?));
    let (cookie, offset) = (u64::from_be_bytes(take(stream)?), u64::from_be_bytes(take(stream)?));
    let bytes = u32::from_be_bytes(take(stream)?);
    let command = match command {
        0 => Command::Read,
        1 => Command::Write,
        2 => Command::Disconnect,
        3 => Command::Flush,
        4 => Command::Trim,
        6 => Command::WriteZeroes,
        _ => Command::Other,
    };
    let mut data = Vec::new();
    if command == Command::Write {
        ensure!(bytes <= REQUEST_BYTES_MAX, "the NBD client writes {bytes} bytes at once");
        data.resize(bytes as usize, 0);
        stream.read_exact(&mut data).context("the NBD client left in a write")?;
    }
    Ok(Some(Request { command, is_through: flags & REQUEST_FLAG_FUA != 0, cookie, offset, bytes, data }))
}

/// Answers a request: with what was read, or nothing, or an error.
pub fn reply(stream: &mut impl Write, cookie: u64, result: Result<&[u8], Errno>) -> Result<()> {
    let (error, data) = match result {
        Ok(data) => (0, data),
        Err(error) => (error as u32, &[][..]),
    };
    let head = [&REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat();
    stream.write_all(&head)?;
    Ok(stream.write_all(data)?)
}

fn take<const BYTES: usize>(stream: &mut impl Read) -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes).context("the NBD client left in a message")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    /// What a client sends, and what it got.
    struct Talk(Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Talk {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Talk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
    }

    fn greeted(flags: u32, options: &[Vec<u8>]) -> (Result<bool>, Vec<u8>) {
        let sent = [&flags.to_be_bytes()[..], &options.concat()].concat();
        let mut talk = Talk(Cursor::new(sent), Vec::new());
        let result = greet(&mut talk, 1 << 20);
        (result, talk.1[18..].to_vec())
    }

    #[test]
    fn an_export_is_named_in_the_old_way() {
        let size = [&(1u64 << 20).to_be_bytes()[..], &TRANSMISSION_FLAGS.to_be_bytes()].concat();
        let (result, said) = greeted(3, &[option_bytes(option::EXPORT_NAME, b"any")]);
        assert!(result.unwrap());
        assert_eq!(said, size);
        let (result, said) = greeted(1, &[option_bytes(option::EXPORT_NAME, b"")]);
        assert!(result.unwrap());
        assert_eq!(said, [&size[..], &[0; ZEROES_BYTES]].concat());
        assert!(greeted(0, &[option_bytes(option::EXPORT_NAME, b"")]).0.is_err());
    }

    #[test]
    fn options_are_refused_until_one_goes() {
        let structured_replies = 8;
        let go = [&[0, 0, 0, 1, b'x', 0, 1][..], &INFO_BLOCK_SIZE.to_be_bytes()].concat();
        let options = [
            option_bytes(structured_replies, b""),
            option_bytes(option::GO, b"bad"),
            option_bytes(option::INFO, &go),
            option_bytes(option::GO, &go),
            b"a request".to_vec(),
        ];
        let (result, said) = greeted(3, &options);
        assert!(result.unwrap());
        let mut said = Cursor::new(said);
        let mut kinds = Vec::new();
        while let Ok(magic) = take(&mut said).map(u64::from_be_bytes) {
            assert_eq!(magic, OPTION_REPLY_MAGIC);
            let [option, kind, bytes] = [0; 3].map(|_| u32::from_be_bytes(take(&mut said).unwrap()));
            let mut data = vec![0; bytes as usize];
            said.read_exact(&mut data).unwrap();
            kinds.push((option, kind));
        }
        let told = |option| [(option, option_reply::INFO), (option, option_reply::INFO), (option, option_reply::ACK)];
        let refused = [(structured_replies, option_reply::UNSUPPORTED), (option::GO, option_reply::INVALID)];
        assert_eq!(kinds, [&refused[..], &told(option::INFO), &told(option::GO)].concat());
        assert!(!greeted(3, &[option_bytes(option::ABORT, b"")]).0.unwrap());
    }

    proptest! {
        /// Whatever comes: an end, an error or a request; no panic and no more than is sent.
        #[test]
        fn foreign_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), is_request in any::<bool>()) {
            let mut request = bytes.clone();
            if is_request && request.len() >= 8 {
                request[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
                request[6] = 0;
            }
            if let Ok(Some(request)) = read_request(&mut Cursor::new(&request)) {
                prop_assert!(request.data.len() <= bytes.len());
            }
            let option = [&3u32.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &bytes].concat();
            let _ = greet(&mut Talk(Cursor::new(option), Vec::new()), 1 << 20);
        }
    }
}
